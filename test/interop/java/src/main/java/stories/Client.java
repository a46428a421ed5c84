package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import interop.Interop;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** What the stories do with the client again and again. */
final class Client {
    private Client() {}

    static Connection connect() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(Interop.uri());
        return factory.newConnection();
    }

    /** Declares a durable queue that nobody owns. */
    static void declare(Channel channel, String queue, Map<String, Object> arguments) throws Exception {
        channel.queueDeclare(queue, true, false, false, arguments);
    }

    static void publish(Channel channel, String exchange, String key, String text) throws Exception {
        channel.basicPublish(exchange, key, null, text.getBytes(StandardCharsets.UTF_8));
    }

    /** Takes the next message of a queue, acknowledged, as soon as there is one. */
    static GetResponse take(Channel channel, String queue) throws Exception {
        return await("a message in " + queue, () -> channel.basicGet(queue, true), message -> message != null);
    }

    /** Waits until a queue has that many ready messages. */
    static void depth(Channel channel, String queue, long messages) throws Exception {
        await(messages + " messages in " + queue, () -> channel.messageCount(queue), count -> count == messages);
    }

    static void body(String want, GetResponse message) {
        equal(want, new String(message.getBody(), StandardCharsets.UTF_8), "body");
    }

    /** Checks through which exchange and with which key a message came. */
    static void cameBy(String exchange, String key, GetResponse message) {
        equal(exchange, message.getEnvelope().getExchange(), "exchange");
        equal(key, message.getEnvelope().getRoutingKey(), "routing key");
    }
}
