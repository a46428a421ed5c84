package stories;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.GetResponse;
import interop.Deaths;
import interop.Interop;
import java.util.List;
import java.util.Map;

/** What the sample of all the guides sets up, once its program has ended: a queue that dead-letters to "some.exchange.name". */
final class Snippet {
    private Snippet() {}

    /**
     * Rejects a message in the queue and takes it from one that is bound to the exchange with the expected key; then
     * removes the exchange: a dead letter is dropped in silence while it is missing (DL-6.9).
     */
    static void check(String queue, String deadKey) throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            channel.exchangeDeclarePassive("some.exchange.name");
            Client.declare(channel, "dead", null);
            channel.queueBind("dead", "some.exchange.name", deadKey);

            reject(channel, queue);
            GetResponse dead = Client.take(channel, "dead");
            Client.body("message", dead);
            Client.cameBy("some.exchange.name", deadKey, dead);
            Map<String, Object> headers = dead.getProps().getHeaders();
            Deaths.check(headers, 0, queue, "rejected", 1, "", List.of(queue));
            Deaths.first(headers, queue, "rejected", "");

            channel.exchangeDelete("some.exchange.name");
            reject(channel, queue);
            Client.depth(channel, queue, 0);
            Client.depth(channel, "dead", 0);

            String shown = Interop.api("GET", "/queues/" + Interop.vhost() + "/" + queue, null);
            Interop.check(shown.contains("\"x-dead-letter-exchange\":\"some.exchange.name\""), "the API does not show the exchange: %s", shown);
            Interop.check(queue.equals(deadKey) == !shown.contains("\"x-dead-letter-routing-key\":\"" + deadKey + "\""),
                    "the API shows another routing key: %s", shown);
        }
    }

    private static void reject(Channel channel, String queue) throws Exception {
        channel.basicPublish("", queue, new AMQP.BasicProperties(), "message".getBytes());
        GetResponse message = Interop.await("a message in " + queue, () -> channel.basicGet(queue, false), got -> got != null);
        channel.basicReject(message.getEnvelope().getDeliveryTag(), false);
    }
}
