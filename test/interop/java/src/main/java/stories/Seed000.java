package stories;

import static interop.Interop.api;
import static interop.Interop.await;
import static interop.Interop.check;
import static interop.Interop.equal;
import static interop.Interop.vhost;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.GetResponse;
import interop.Deaths;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import seed000.DeadLetterArguments;

/** ApsaraMQ's page on dead letter exchanges (seed 000). */
final class Seed000 {
    private Seed000() {}

    /** The sample, against any broker. */
    static void arguments() throws Exception {
        Program.run(DeadLetterArguments.class);
        Snippet.check("MyQueue", "demo-routing-key");
    }

    /**
     * What only ApsaraMQ's profile does, in a virtual host that has it: reasons, x-death-total, 16 deliveries again, dead
     * letters that do not expire, a dead letter exchange that cannot be changed (DL-22.1 to DL-22.8).
     */
    static void profile() throws Exception {
        api("PUT", "/vhosts/" + vhost(), "{\"profile\":\"apsaramq\"}");
        Program.run(DeadLetterArguments.class);
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "dead", Map.of("x-message-ttl", 1));
            channel.queueBind("dead", "some.exchange.name", "demo-routing-key");

            publish(channel, null);
            channel.basicReject(next(channel), false);
            dies(channel, "reject");
            publish(channel, null);
            channel.basicNack(next(channel), false, false);
            dies(channel, "nack");
            publish(channel, "1");
            dies(channel, "expired");
            publish(channel, null);
            AtomicInteger deliveries = new AtomicInteger();
            channel.basicConsume("MyQueue", false, (tag, delivery) -> {
                deliveries.incrementAndGet();
                channel.basicNack(delivery.getEnvelope().getDeliveryTag(), false, true);
            }, tag -> {});
            dies(channel, "consumption_limit_exceeded");
            equal(17, deliveries.get(), "deliveries");
        }
        try (Connection connection = Client.connect()) {
            Client.declare(connection.createChannel(), "MyQueue", Map.of("x-dead-letter-exchange", "amq.direct"));
        } catch (IOException refused) {
            return;
        }
        check(false, "the dead letter exchange of a queue was changed");
    }

    private static void publish(Channel channel, String expiration) throws Exception {
        channel.basicPublish("", "MyQueue", new AMQP.BasicProperties.Builder().expiration(expiration).build(), "message".getBytes());
    }

    private static long next(Channel channel) throws Exception {
        return await("a delivery", () -> channel.basicGet("MyQueue", false), got -> got != null).getEnvelope().getDeliveryTag();
    }

    private static void dies(Channel channel, String reason) throws Exception {
        GetResponse dead = Client.take(channel, "dead"); // although its messages have a TTL
        Client.cameBy("some.exchange.name", "demo-routing-key", dead);
        Map<String, Object> headers = dead.getProps().getHeaders();
        Deaths.check(headers, 0, "MyQueue", reason, 1, "", List.of("MyQueue"));
        Deaths.first(headers, "MyQueue", reason, "");
        equal(1L, headers.get("x-death-total"), "x-death-total");
        check(!headers.containsKey("x-last-death-reason"), "there is an x-last-death-reason: %s", headers);
    }
}
