// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package jinapb_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	docarraypb "github.com/seed98143e88/grpcretry/proto/docarray"
	jinapb "github.com/seed98143e88/grpcretry/proto/jina"
)

// files are those whose wire format belongs to others.
var files = []protoreflect.FileDescriptor{jinapb.File_jina_jina_proto, docarraypb.File_docarray_docarray_proto}

// wireMessages are Jina's and docarray's messages: number, type and name of each field,
// as they were read from the .proto files of both. In Jina's, documents are messages.
var wireMessages = map[string][]string{
	"jina.DataRequestProto": {
		"1 jina.HeaderProto header",
		"2 google.protobuf.Struct parameters",
		"3 repeated jina.RouteProto routes",
		"4 jina.DataRequestProto.DataContentProto data",
	},
	"jina.DataRequestProto.DataContentProto": {
		"1 oneof documents bytes docs",
		"2 oneof documents bytes docs_bytes",
	},
	"jina.SingleDocumentRequestProto": {
		"1 jina.HeaderProto header",
		"2 google.protobuf.Struct parameters",
		"3 repeated jina.RouteProto routes",
		"4 optional bytes document",
	},
	"jina.DataRequestProtoWoData": {
		"1 jina.HeaderProto header",
		"2 google.protobuf.Struct parameters",
		"3 repeated jina.RouteProto routes",
	},
	"jina.DataRequestListProto": {
		"1 repeated jina.DataRequestProto requests",
	},
	"jina.HeaderProto": {
		"1 string request_id",
		"2 jina.StatusProto status",
		"3 optional string exec_endpoint",
		"4 optional string target_executor",
		"5 optional uint32 timeout",
	},
	"jina.StatusProto": {
		"1 jina.StatusProto.StatusCode code",
		"2 string description",
		"3 jina.StatusProto.ExceptionProto exception",
	},
	"jina.StatusProto.ExceptionProto": {
		"1 string name",
		"2 repeated string args",
		"3 repeated string stacks",
		"4 string executor",
	},
	"jina.RouteProto": {
		"1 string executor",
		"2 google.protobuf.Timestamp start_time",
		"3 google.protobuf.Timestamp end_time",
		"4 jina.StatusProto status",
	},
	"jina.EndpointsProto": {
		"1 repeated string endpoints",
		"2 repeated string write_endpoints",
		"3 google.protobuf.Struct schemas",
	},
	"jina.JinaInfoProto": {
		"1 map<string, string> jina",
		"2 map<string, string> envs",
	},
	"jina.RelatedEntity": {
		"1 string id",
		"2 string address",
		"3 uint32 port",
		"4 optional uint32 shard_id",
	},
	"jina.SnapshotId": {"1 string value"},
	"jina.RestoreId":  {"1 string value"},
	"jina.SnapshotStatusProto": {
		"1 jina.SnapshotId id",
		"2 jina.SnapshotStatusProto.Status status",
		"3 string snapshot_file",
	},
	"jina.RestoreSnapshotCommand": {"1 string snapshot_file"},
	"jina.RestoreSnapshotStatusProto": {
		"1 jina.RestoreId id",
		"2 jina.RestoreSnapshotStatusProto.Status status",
	},

	"docarray.DocListProto": {"1 repeated docarray.DocProto docs"},
	"docarray.DocProto":     {"1 map<string, docarray.NodeProto> data"},
	"docarray.NodeProto": {
		"1 oneof content string text",
		"2 oneof content int32 integer",
		"3 oneof content double float",
		"4 oneof content bool boolean",
		"5 oneof content bytes blob",
		"6 oneof content docarray.NdArrayProto ndarray",
		"7 oneof content docarray.DocProto doc",
		"8 oneof content docarray.DocListProto doc_array",
		"9 oneof content docarray.ListOfAnyProto list",
		"10 oneof content docarray.ListOfAnyProto set",
		"11 oneof content docarray.ListOfAnyProto tuple",
		"12 oneof content docarray.DictOfAnyProto dict",
		"13 oneof docarray_type string type",
	},
	"docarray.DictOfAnyProto": {"1 map<string, docarray.NodeProto> data"},
	"docarray.ListOfAnyProto": {"1 repeated docarray.NodeProto data"},
	"docarray.NdArrayProto": {
		"1 docarray.DenseNdArrayProto dense",
		"2 google.protobuf.Struct parameters",
	},
	"docarray.DenseNdArrayProto": {
		"1 bytes buffer",
		"2 repeated uint32 shape",
		"3 string dtype",
	},
}

// wireEnums are Jina's enums: number and name of each value.
var wireEnums = map[string][]string{
	"jina.StatusProto.StatusCode": {"0 SUCCESS", "1 ERROR"},
	"jina.SnapshotStatusProto.Status": {
		"0 STATE_UNSPECIFIED", "1 QUEUED", "2 SCHEDULED", "3 RUNNING", "4 SUCCEEDED", "5 FAILED", "6 NOT_FOUND",
	},
	"jina.RestoreSnapshotStatusProto.Status": {
		"0 STATE_UNSPECIFIED", "1 RUNNING", "2 SUCCEEDED", "3 FAILED", "6 NOT_FOUND",
	},
}

// wireMethods are Jina's methods: path, what they take and return, and which of them
// change nothing, as which Jina does not declare them.
var wireMethods = []string{
	"/jina.JinaRPC/Call stream jina.DataRequestProto → stream jina.DataRequestProto",
	"/jina.JinaSingleDataRequestRPC/process_single_data jina.DataRequestProto → jina.DataRequestProto",
	"/jina.JinaDataRequestRPC/process_data jina.DataRequestListProto → jina.DataRequestProto",
	"/jina.JinaSingleDocumentRequestRPC/stream_doc jina.SingleDocumentRequestProto → stream jina.SingleDocumentRequestProto",
	"/jina.JinaDiscoverEndpointsRPC/endpoint_discovery google.protobuf.Empty → jina.EndpointsProto, NO_SIDE_EFFECTS",
	"/jina.JinaGatewayDryRunRPC/dry_run google.protobuf.Empty → jina.StatusProto, NO_SIDE_EFFECTS",
	"/jina.JinaInfoRPC/_status google.protobuf.Empty → jina.JinaInfoProto, NO_SIDE_EFFECTS",
	"/jina.JinaExecutorSnapshot/snapshot google.protobuf.Empty → jina.SnapshotStatusProto",
	"/jina.JinaExecutorSnapshotProgress/snapshot_status jina.SnapshotId → jina.SnapshotStatusProto, NO_SIDE_EFFECTS",
	"/jina.JinaExecutorRestore/restore jina.RestoreSnapshotCommand → jina.RestoreSnapshotStatusProto",
	"/jina.JinaExecutorRestoreProgress/restore_status jina.RestoreId → jina.RestoreSnapshotStatusProto, NO_SIDE_EFFECTS",
}

// invokedMethods are the paths that the generated stubs call.
var invokedMethods = []string{
	jinapb.JinaRPC_Call_FullMethodName,
	jinapb.JinaSingleDataRequestRPC_ProcessSingleData_FullMethodName,
	jinapb.JinaDataRequestRPC_ProcessData_FullMethodName,
	jinapb.JinaSingleDocumentRequestRPC_StreamDoc_FullMethodName,
	jinapb.JinaDiscoverEndpointsRPC_EndpointDiscovery_FullMethodName,
	jinapb.JinaGatewayDryRunRPC_DryRun_FullMethodName,
	jinapb.JinaInfoRPC_XStatus_FullMethodName,
	jinapb.JinaExecutorSnapshot_Snapshot_FullMethodName,
	jinapb.JinaExecutorSnapshotProgress_SnapshotStatus_FullMethodName,
	jinapb.JinaExecutorRestore_Restore_FullMethodName,
	jinapb.JinaExecutorRestoreProgress_RestoreStatus_FullMethodName,
}

// typeName writes a field's type as a .proto file does.
func typeName(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return fmt.Sprintf("map<%s, %s>", typeName(field.MapKey()), typeName(field.MapValue()))
	case field.Message() != nil:
		return string(field.Message().FullName())
	case field.Enum() != nil:
		return string(field.Enum().FullName())
	default:
		return field.Kind().String()
	}
}

// fieldText writes a field as wireMessages does.
func fieldText(field protoreflect.FieldDescriptor) string {
	label := ""
	switch {
	case field.IsList():
		label = "repeated "
	case field.HasOptionalKeyword():
		label = "optional "
	case field.ContainingOneof() != nil:
		label = fmt.Sprintf("oneof %s ", field.ContainingOneof().Name())
	}
	return fmt.Sprintf("%d %s%s %s", field.Number(), label, typeName(field), field.Name())
}

// methodText writes a method as wireMethods does.
func methodText(method protoreflect.MethodDescriptor) string {
	streams := map[bool]string{true: "stream "}
	text := fmt.Sprintf("/%s/%s %s%s → %s%s", method.Parent().FullName(), method.Name(),
		streams[method.IsStreamingClient()], method.Input().FullName(),
		streams[method.IsStreamingServer()], method.Output().FullName())
	options := method.Options().(*descriptorpb.MethodOptions)
	if level := options.GetIdempotencyLevel(); level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
		text += ", " + level.String()
	}
	return text
}

// parent is a file or a message.
type parent interface {
	Messages() protoreflect.MessageDescriptors
}

// messages returns those of a file and those within them, but for the entries of maps.
func messages(of parent) []protoreflect.MessageDescriptor {
	var found []protoreflect.MessageDescriptor
	for i := range of.Messages().Len() {
		if message := of.Messages().Get(i); !message.IsMapEntry() {
			found = append(append(found, message), messages(message)...)
		}
	}
	return found
}

// TestMessages holds that peers understand our messages, and we theirs.
func TestMessages(t *testing.T) {
	t.Parallel()
	got, enums := map[string][]string{}, map[string][]string{}
	for _, file := range files {
		for _, message := range messages(file) {
			for i := range message.Fields().Len() {
				name := string(message.FullName())
				got[name] = append(got[name], fieldText(message.Fields().Get(i)))
			}
			for i := range message.Enums().Len() {
				enum := message.Enums().Get(i)
				for j := range enum.Values().Len() {
					value, name := enum.Values().Get(j), string(enum.FullName())
					enums[name] = append(enums[name], fmt.Sprintf("%d %s", value.Number(), value.Name()))
				}
			}
		}
		assert.Equal(t, protoreflect.Proto3, file.Syntax())
		assert.Zero(t, file.Enums().Len())
	}
	assert.Equal(t, wireMessages, got)
	assert.Equal(t, wireEnums, enums)
}

// TestMethods holds that peers find our methods, and we theirs.
func TestMethods(t *testing.T) {
	t.Parallel()
	var got, paths []string
	services := jinapb.File_jina_jina_proto.Services()
	for i := range services.Len() {
		service := services.Get(i)
		for j := range service.Methods().Len() {
			method := service.Methods().Get(j)
			got = append(got, methodText(method))
			paths = append(paths, fmt.Sprintf("/%s/%s", service.FullName(), method.Name()))
		}
	}
	assert.ElementsMatch(t, wireMethods, got)
	assert.ElementsMatch(t, invokedMethods, paths)
	assert.Zero(t, docarraypb.File_docarray_docarray_proto.Services().Len())
}

// TestUnknownFields holds that what a later version of a peer sends is passed on.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	unknown := protowire.AppendTag(nil, 1000, protowire.BytesType)
	unknown = protowire.AppendString(unknown, "from a later version")
	for _, file := range files {
		for _, descriptor := range messages(file) {
			message, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
			require.NoError(t, err)
			m := message.New().Interface()
			require.NoError(t, proto.Unmarshal(unknown, m))
			data, err := proto.Marshal(m)
			require.NoError(t, err)
			assert.Equal(t, unknown, data, descriptor.FullName())
		}
	}
}

// TestDocumentsPass holds that documents that are bytes to us are messages to peers, and
// that an empty one does not get lost.
func TestDocumentsPass(t *testing.T) {
	t.Parallel()
	list := &docarraypb.DocListProto{Docs: []*docarraypb.DocProto{{Data: map[string]*docarraypb.NodeProto{
		"text": {Content: &docarraypb.NodeProto_Text{Text: "hello"}},
	}}}}
	docs, err := proto.Marshal(list)
	require.NoError(t, err)
	for _, docs := range [][]byte{docs, {}} {
		content := &jinapb.DataRequestProto_DataContentProto{
			Documents: &jinapb.DataRequestProto_DataContentProto_Docs{Docs: docs},
		}
		data, err := proto.Marshal(content)
		require.NoError(t, err)
		assert.Equal(t, protowire.AppendBytes([]byte{1<<3 | 2}, docs), data)
		single, err := proto.Marshal(&jinapb.SingleDocumentRequestProto{Document: docs})
		require.NoError(t, err)
		assert.Equal(t, protowire.AppendBytes([]byte{4<<3 | 2}, docs), single)
	}
}
