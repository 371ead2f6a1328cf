// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// Package jina has the documents of Jina's requests and responses as they are on the
// wire: encoded, each one by itself, whether they are docarray's v1 or v2. The messages
// and services around them are in package jinapb, docarray's v2 messages in docarraypb.
package jina
