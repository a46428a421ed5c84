package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.GetResponse;
import interop.Deaths;
import java.util.List;
import java.util.Map;

/** basic.reject and basic.nack without requeue move a message to the dead letter exchange, with its history. */
final class Reject {
    private Reject() {}

    static void play() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            channel.exchangeDeclare("orders.exchange", BuiltinExchangeType.TOPIC, true);
            channel.exchangeDeclare("orders.dlx", BuiltinExchangeType.DIRECT, true);
            Client.declare(channel, "orders", Map.of("x-dead-letter-exchange", "orders.dlx", "x-dead-letter-routing-key", "dead"));
            Client.declare(channel, "orders.dlq", null);
            channel.queueBind("orders", "orders.exchange", "order.*");
            channel.queueBind("orders.dlq", "orders.dlx", "dead");

            for (boolean nack : new boolean[] {false, true}) {
                AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                        .messageId("order-1")
                        .headers(Map.of("customer", 7))
                        .build();
                channel.basicPublish("orders.exchange", "order.created", properties, "order".getBytes());
                GetResponse order = await("the order", () -> channel.basicGet("orders", false), got -> got != null);
                if (nack) {
                    channel.basicNack(order.getEnvelope().getDeliveryTag(), false, false);
                } else {
                    channel.basicReject(order.getEnvelope().getDeliveryTag(), false);
                }
                GetResponse dead = Client.take(channel, "orders.dlq");
                Client.body("order", dead);
                Client.cameBy("orders.dlx", "dead", dead);
                Map<String, Object> headers = dead.getProps().getHeaders();
                equal("order-1", dead.getProps().getMessageId(), "message id");
                equal(7, headers.get("customer"), "the header of the publisher");
                equal(1, Deaths.of(headers).size(), "entries of x-death");
                Deaths.check(headers, 0, "orders", "rejected", 1, "orders.exchange", List.of("order.created"));
                Deaths.first(headers, "orders", "rejected", "orders.exchange");
                Deaths.last(headers, "orders", "rejected", "orders.exchange");
            }
            Client.depth(channel, "orders", 0);
        }
    }
}
