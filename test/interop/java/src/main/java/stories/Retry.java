package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.GetResponse;
import interop.Deaths;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;

/** work rejects into wait, wait expires back into work (DL-19.1); after three rounds the consumer parks the message (DL-19.5). */
final class Retry {
    private static final int ROUNDS = 3;
    private static final int WAIT = 200; // ms

    private Retry() {}

    static void play() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "work", Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "wait"));
            Client.declare(channel, "wait", Map.of(
                    "x-message-ttl", WAIT, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "work"));
            Client.declare(channel, "parking", null);

            List<Long> counts = new CopyOnWriteArrayList<>();
            channel.basicConsume("work", false, (tag, delivery) -> {
                long tag64 = delivery.getEnvelope().getDeliveryTag();
                long count = Deaths.count(delivery.getProperties().getHeaders(), "work", "rejected");
                counts.add(count);
                if (count < ROUNDS) {
                    channel.basicReject(tag64, false);
                } else {
                    channel.basicPublish("", "parking", delivery.getProperties(), delivery.getBody());
                    channel.basicAck(tag64, false);
                }
            }, tag -> {});

            long began = System.nanoTime();
            Channel other = connection.createChannel();
            Client.publish(other, "", "work", "poison");
            GetResponse parked = Client.take(other, "parking");
            long took = (System.nanoTime() - began) / 1_000_000;
            check(took >= ROUNDS * WAIT, "%d rounds of %d ms took %d ms", ROUNDS, WAIT, took);
            equal(List.of(0L, 1L, 2L, 3L), counts, "counts that the consumer saw");
            Client.body("poison", parked);
            Map<String, Object> headers = parked.getProps().getHeaders();
            equal(2, Deaths.of(headers).size(), "entries of x-death");
            Deaths.check(headers, 0, "wait", "expired", ROUNDS, "", List.of("wait"));
            Deaths.check(headers, 1, "work", "rejected", ROUNDS, "", List.of("work"));
            Deaths.first(headers, "work", "rejected", "");
            Client.depth(other, "work", 0);
            Client.depth(other, "wait", 0);
        }
    }
}
