// The API of ApsaraMQ for RabbitMQ, played by Alibaba Cloud's generic RPC client for Node.
//
// The environment says where a node is and what may be asked of it: OPENAPI_ENDPOINT
// (HOST:PORT), OPENAPI_KEY, OPENAPI_SECRET.
'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');
const { RPCClient } = require('@alicloud/pop-core');

const { OPENAPI_ENDPOINT: endpoint, OPENAPI_KEY: key, OPENAPI_SECRET: secret } = process.env;
const InstanceId = 'amqp-cn-test';

function client(accessKeyId = key, accessKeySecret = secret) {
  return new RPCClient({ accessKeyId, accessKeySecret, endpoint: `http://${endpoint}`, apiVersion: '2019-12-12' });
}

// The reference has GET for what lists and POST for what changes; the client's default is GET.
for (const method of ['POST', 'GET']) {
  test(`the story by ${method}`, async () => {
    const api = client();
    const VirtualHost = `pop-core/${method}`;
    const call = async (action, parameters = {}) => {
      const opts = /^(List|Get)/.test(action) ? {} : { method };
      const answer = await api.request(action, { InstanceId, VirtualHost, ...parameters }, opts);
      assert.ok(answer.RequestId);
      return answer.Data;
    };
    const refused = (code, action, parameters) => assert.rejects(call(action, parameters), { code });

    await call('CreateVirtualHost');
    assert.ok((await call('ListVirtualHosts', { MaxResults: 100 })).VirtualHosts.some((v) => v.Name === VirtualHost));

    await call('CreateExchange', { ExchangeName: 'by-header', ExchangeType: 'HEADERS', AutoDeleteState: true, Internal: false });
    await call('CreateExchange', { ExchangeName: 'dlx', ExchangeType: 'DIRECT', AutoDeleteState: false, Internal: false });
    await call('CreateQueue', { QueueName: 'q#1#', MessageTTL: 0, DeadLetterExchange: 'dlx' });
    await call('CreateBinding', {
      SourceExchange: 'by-header', DestinationName: 'q#1#', BindingType: 0, BindingKey: 'k', Argument: 'x-match:any;type:report;format:pdf',
    });
    await call('CreateBinding', { SourceExchange: 'dlx', DestinationName: 'by-header', BindingType: 1, BindingKey: 'a/b@c' });

    const { Queues } = await call('ListQueues', { MaxResults: 10 });
    assert.deepEqual(Queues.map((q) => [q.Name, q.Attributes['x-message-ttl']]), [['q#1#', 0]]);
    const { Bindings } = await call('ListBindings', { MaxResults: 10 });
    assert.deepEqual(Bindings.map((b) => b.Argument), ['format:pdf;type:report;x-match:any', '']);
    assert.equal((await call('ListQueueUpStreamBindings', { QueueName: 'q#1#', MaxResults: 10 })).Bindings.length, 1);
    assert.equal((await call('ListExchangeUpStreamBindings', { ExchangeName: 'by-header' })).Bindings.length, 1);
    assert.equal((await call('ListDownStreamBindings', { ExchangeName: 'dlx' })).Bindings[0].BindingType, 'EXCHANGE');
    assert.equal((await call('ListExchanges')).Exchanges.filter((x) => !x.Name.startsWith('amq.')).length, 2);
    assert.deepEqual((await call('ListQueueConsumers', { Queue: 'q#1#' })).Consumers, []);
    assert.ok((await call('GetMetadataAmount')).CurrentQueues >= 1);

    await refused('InvalidQueueName', 'CreateQueue', { QueueName: 'a*(b)!' });
    await refused('InvalidExchangeName', 'DeleteExchange', { ExchangeName: 'by-header' }); // of the type headers
    await refused('InvalidAction.NotFound', 'UpdateQueue', { QueueName: 'q#1#' });
    await refused('MissingQueueName', 'CreateQueue');

    // by-header is deleted with its last binding.
    await call('DeleteBinding', { SourceExchange: 'by-header', DestinationName: 'q#1#', BindingType: 'QUEUE', BindingKey: 'k' });
    await call('DeleteQueue', { QueueName: 'q#1#' });
    await call('DeleteExchange', { ExchangeName: 'dlx' });
    await call('DeleteVirtualHost');
    await refused('VhostNotExist', 'ListQueues', { MaxResults: 10 });
  });
}

test('wrong keys are refused', async () => {
  for (const method of ['POST', 'GET']) {
    const request = (api) => api.request('ListVirtualHosts', { InstanceId, MaxResults: 1 }, { method });
    await assert.rejects(request(client(key, `${secret}?`)), { code: 'SignatureDoesNotMatch' });
    await assert.rejects(request(client('LTAInobody')), { code: 'InvalidAccessKeyId.NotFound' });
  }
});
