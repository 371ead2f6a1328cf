# Copyright 2026 The grpcretry Authors
# SPDX-License-Identifier: Apache-2.0

"""A client of the test service, on gRPC's C core.

It reads from standard input where the server is, a service config and calls, makes
the calls one after the other, and prints what each came to. client.js and goClient
do the same.
"""

import base64
import json
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory

SERVICE = "grpcretry.test.v1.TestService"
PACKAGE = "grpcretry.test.v1."


def messages(descriptor):
    """Makes the message classes from a descriptor, which needs no code generator."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(base64.b64decode(descriptor))
    factory = message_factory.MessageFactory(pool)
    return [
        factory.GetPrototype(pool.FindMessageTypeByName(PACKAGE + name))
        for name in ("Request", "Response")
    ]


def run(channel, call, request, response):
    make = channel.unary_stream if call["streams"] else channel.unary_unary
    method = make(
        f"/{SERVICE}/{call['method']}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    result = {"id": call["id"], "code": "OK", "message": "", "answers": []}
    try:
        answers = method(
            request(key=call["id"]),
            timeout=call["timeoutMs"] / 1000,
            metadata=[("x-call", call["id"])],
        )
        for answer in answers if call["streams"] else [answers]:
            result["answers"].append(f"{answer.key} {answer.sequence}")
    except grpc.RpcError as error:
        result["code"] = error.code().name
        result["message"] = error.details()
    return result


def main():
    task = json.load(sys.stdin)
    request, response = messages(task["descriptor"])
    options = [
        ("grpc.service_config", task["serviceConfig"]),
        ("grpc.enable_http_proxy", 0),
    ]
    with grpc.insecure_channel(task["target"], options=options) as channel:
        results = [run(channel, call, request, response) for call in task["calls"]]
    json.dump({"library": f"grpcio {grpc.__version__}", "results": results}, sys.stdout)


main()
