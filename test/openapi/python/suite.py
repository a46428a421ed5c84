"""The API of ApsaraMQ for RabbitMQ, played by Alibaba Cloud's clients for Python.

The environment says where a node is and what may be asked of it: OPENAPI_ENDPOINT (HOST:PORT),
OPENAPI_KEY, OPENAPI_SECRET."""

import base64
import json
import os
import time
import unittest
import urllib.parse
import urllib.request

from clients import Older, Refused, Typed

ENDPOINT, KEY, SECRET = (os.environ["OPENAPI_" + n] for n in ("ENDPOINT", "KEY", "SECRET"))
INSTANCE = "amqp-cn-test"


def management(method, path, body=None):
    """A request to RabbitMQ's management API, to look from another side."""
    request = urllib.request.Request(
        f"http://{ENDPOINT}/api/{path}", method=method, data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()})
    with urllib.request.urlopen(request) as response:
        text = response.read()
    return json.loads(text) if text else None


class Story:
    """What each client plays. A subclass makes the client, with a key and a secret."""

    vhost = ""
    wrong_secret = "SignatureDoesNotMatch"

    def client(self, key=KEY, secret=SECRET):
        raise NotImplementedError

    def setUp(self):
        self.api = self.client()

    def call(self, action, **parameters):
        answer = self.api.call(action, InstanceId=INSTANCE, VirtualHost=self.vhost, **parameters)
        self.assertTrue(answer["RequestId"])
        return answer.get("Data")

    def refused(self, status, code, action, **parameters):
        with self.assertRaises(Refused) as caught:
            self.call(action, **parameters)
        self.assertEqual((status, code), (caught.exception.status, caught.exception.code))

    def test_story(self):
        made = self.api.call("CreateVirtualHost", InstanceId=INSTANCE, VirtualHost=self.vhost)
        self.assertTrue(made["RequestId"])
        hosts = self.api.call("ListVirtualHosts", InstanceId=INSTANCE, MaxResults=100)["Data"]["VirtualHosts"]
        self.assertIn({"Name": self.vhost}, hosts)

        # An exchange, a dead letter exchange and their queues.
        for name, kind in (("orders", "TOPIC"), ("dlx", "DIRECT"), ("spare", "FANOUT")):
            self.call("CreateExchange", ExchangeName=name, ExchangeType=kind, AutoDeleteState=False, Internal=False)
        self.call("CreateQueue", QueueName="work#1/a@b", MessageTTL=100, DeadLetterExchange="dlx", DeadLetterRoutingKey="dead", AutoDeleteState=False)
        self.call("CreateQueue", QueueName="dead", AutoDeleteState=False)
        self.call("CreateBinding", SourceExchange="orders", DestinationName="work#1/a@b", BindingType="QUEUE", BindingKey="order.*.#")
        self.call("CreateBinding", SourceExchange="dlx", DestinationName="dead", BindingType="0", BindingKey="dead")
        self.call("CreateBinding", SourceExchange="orders", DestinationName="spare", BindingType="EXCHANGE", BindingKey="#")

        # Seen from all sides.
        exchanges = {x["Name"]: x for x in self.call("ListExchanges", MaxResults=100)["Exchanges"]}
        self.assertEqual("TOPIC", exchanges["orders"]["ExchangeType"])
        self.assertFalse(exchanges["orders"]["AutoDeleteState"])
        first = self.call("ListQueues", MaxResults=1)
        second = self.call("ListQueues", MaxResults=1, NextToken=first["NextToken"])
        self.assertEqual(["dead", "work#1/a@b"], [q["Name"] for q in first["Queues"] + second["Queues"]])
        self.assertFalse(second["NextToken"])
        queue = second["Queues"][0]
        self.assertEqual((self.vhost, INSTANCE, 100), (queue["VHostName"], queue["OwnerId"], queue["Attributes"]["x-message-ttl"]))
        self.assertEqual(3, len(self.call("ListBindings", MaxResults=100)["Bindings"]))
        up = self.call("ListQueueUpStreamBindings", QueueName="work#1/a@b", MaxResults=10)["Bindings"]
        self.assertEqual([("orders", "order.*.#")], [(b["SourceExchange"], b["BindingKey"]) for b in up])
        up = self.call("ListExchangeUpStreamBindings", ExchangeName="spare", MaxResults=10)["Bindings"]
        self.assertEqual([("orders", "EXCHANGE")], [(b["SourceExchange"], b["BindingType"]) for b in up])
        down = self.call("ListDownStreamBindings", ExchangeName="orders", MaxResults=10)["Bindings"]
        self.assertEqual({"work#1/a@b", "spare"}, {b["DestinationName"] for b in down})
        self.assertFalse(self.call("ListQueueConsumers", Queue="dead", QueryCount=10)["Consumers"])
        self.assertGreaterEqual(self.api.call("GetMetadataAmount", InstanceId=INSTANCE)["Data"]["CurrentQueues"], 2)

        # What was declared works: a message expires, and its dead letter is found.
        host = urllib.parse.quote(self.vhost, safe="")
        sent = management("POST", f"exchanges/{host}/orders/publish", {
            "properties": {}, "routing_key": "order.new", "payload": "hello", "payload_encoding": "string"})
        self.assertTrue(sent["routed"])
        self.assertEqual("hello", self.dead_letter(host)["payload"])

        # What is not allowed is refused.
        self.refused(400, "InvalidMessageTTL", "CreateQueue", QueueName="long", MessageTTL=86400001)
        self.refused(400, "InvalidQueueName", "CreateQueue", QueueName="amq.mine")
        self.refused(400, "QueueHasDiffField", "CreateQueue", QueueName="dead", MessageTTL=1)
        self.refused(404, "QueueNotExist", "DeleteQueue", QueueName="nothing")
        self.refused(400, "InvalidExchangeName", "DeleteExchange", ExchangeName="amq.direct")
        self.refused(400, "VhostNotEmpty", "DeleteVirtualHost")

        # And all of it goes.
        self.call("DeleteBinding", SourceExchange="orders", DestinationName="spare", BindingType="EXCHANGE", BindingKey="#")
        self.assertEqual(2, len(self.call("ListBindings", MaxResults=100)["Bindings"]))
        for name in ("work#1/a@b", "dead"):
            self.call("DeleteQueue", QueueName=name)
        self.assertFalse(self.call("ListQueues", MaxResults=10)["Queues"])
        for name in ("orders", "dlx", "spare"):
            self.call("DeleteExchange", ExchangeName=name)
        self.call("DeleteVirtualHost")
        hosts = self.api.call("ListVirtualHosts", InstanceId=INSTANCE, MaxResults=100)["Data"]["VirtualHosts"]
        self.assertNotIn({"Name": self.vhost}, hosts)

    def dead_letter(self, host):
        """The first message of the dead letter queue, as soon as there is one."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            got = management("POST", f"queues/{host}/dead/get", {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"})
            if got:
                return got[0]
            time.sleep(0.05)
        self.fail("there is no dead letter")

    def test_wrong_secret(self):
        self.api = self.client(secret=SECRET + "?")
        self.refused(400, self.wrong_secret, "ListQueues", MaxResults=1)
        self.refused(400, self.wrong_secret, "CreateQueue", QueueName="q")

    def test_unknown_key(self):
        self.api = self.client(key="LTAInobody")
        self.refused(404, "InvalidAccessKeyId.NotFound", "ListQueues", MaxResults=1)


class TypedByVersion3(Story, unittest.TestCase):
    vhost = "typed-acs3"

    def client(self, key=KEY, secret=SECRET):
        return Typed(ENDPOINT, key, secret)


class TypedByVersion1(Story, unittest.TestCase):
    vhost = "typed-rpc"

    def client(self, key=KEY, secret=SECRET):
        return Typed(ENDPOINT, key, secret, algorithm="v2")


class OlderPackage(Story, unittest.TestCase):
    vhost = "older/@#"
    # What it makes of SignatureDoesNotMatch when the server has signed the same text.
    wrong_secret = "InvalidAccessKeySecret"

    def client(self, key=KEY, secret=SECRET):
        return Older(ENDPOINT, key, secret)


if __name__ == "__main__":
    unittest.main(verbosity=2)
