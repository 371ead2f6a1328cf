// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

// A client of the test service: it reads from standard input where the server is, a
// service config and calls, makes the calls one after the other, and prints what each
// came to. client.py and goClient do the same.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const protos = path.join(__dirname, '..', '..', 'proto');
const definition = loader.loadSync('grpcretry/test/v1/test.proto', {
  includeDirs: [protos],
  longs: Number,
});
const {TestService} = grpc.loadPackageDefinition(definition).grpcretry.test.v1;

function run(client, call) {
  return new Promise((resolve) => {
    const metadata = new grpc.Metadata();
    metadata.set('x-call', call.id);
    const options = {deadline: Date.now() + call.timeoutMs};
    const result = {id: call.id, code: '', message: '', answers: []};
    const answered = (answer) => result.answers.push(`${answer.key} ${answer.sequence}`);
    const ended = (status) => {
      result.code = grpc.status[status.code];
      result.message = status.details;
      resolve(result);
    };
    if (call.streams) {
      const stream = client[call.method]({key: call.id}, metadata, options);
      stream.on('data', answered);
      stream.on('error', () => {}); // the status tells the same
      stream.on('status', (status) => setImmediate(ended, status));
      return;
    }
    client[call.method]({key: call.id}, metadata, options, (error, answer) => {
      if (!error) {
        answered(answer);
      }
      ended(error ?? {code: grpc.status.OK, details: ''});
    });
  });
}

async function main() {
  const task = JSON.parse(fs.readFileSync(0, 'utf8'));
  const client = new TestService(task.target, grpc.credentials.createInsecure(), {
    'grpc.service_config': task.serviceConfig,
    'grpc.enable_http_proxy': 0,
  });
  const results = [];
  for (const call of task.calls) {
    results.push(await run(client, call));
  }
  client.close();
  const {version} = require('@grpc/grpc-js/package.json');
  process.stdout.write(JSON.stringify({library: `grpc-js ${version}`, results}));
}

main();
