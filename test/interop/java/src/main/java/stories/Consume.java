package stories;

import static interop.Interop.await;
import static interop.Interop.check;
import static interop.Interop.equal;

import com.rabbitmq.client.CancelCallback;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.Delivery;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** A prefetch bounds what is unacknowledged; what a closed channel left unacknowledged comes again, marked so. */
final class Consume {
    private static final int MESSAGES = 20;
    private static final int PREFETCH = 5;
    private static final int DONE = 3; // acknowledged before the channel closes

    private Consume() {}

    static void play() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "orders", null);
            for (int i = 0; i < MESSAGES; i++) {
                Client.publish(channel, "", "orders", "order " + i);
            }
            Client.depth(channel, "orders", MESSAGES);

            List<Delivery> got = new CopyOnWriteArrayList<>();
            CancelCallback never = tag -> {};
            Channel first = connection.createChannel();
            first.basicQos(PREFETCH);
            first.basicConsume("orders", false, (tag, delivery) -> got.add(delivery), never);
            await("the prefetch", () -> got.size(), size -> size == PREFETCH);
            Client.depth(channel, "orders", MESSAGES - PREFETCH);
            first.basicAck(got.get(DONE - 1).getEnvelope().getDeliveryTag(), true); // and those before it
            await("as many as were acknowledged", () -> got.size(), size -> size == PREFETCH + DONE);
            equal(orders(0, PREFETCH + DONE), bodies(got), "deliveries");
            check(got.stream().noneMatch(delivery -> delivery.getEnvelope().isRedeliver()), "a first delivery is marked as redelivered");
            first.close();
            Client.depth(channel, "orders", MESSAGES - DONE);

            got.clear();
            Channel second = connection.createChannel();
            second.basicConsume("orders", false, (tag, delivery) -> {
                got.add(delivery);
                second.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            }, never);
            await("the rest", () -> got.size(), size -> size == MESSAGES - DONE);
            equal(orders(DONE, MESSAGES), bodies(got), "deliveries of the second consumer");
            for (int i = 0; i < got.size(); i++) {
                equal(i < PREFETCH, got.get(i).getEnvelope().isRedeliver(), "redelivered of delivery " + i);
            }
            second.close();
            Client.depth(channel, "orders", 0);
        }
    }

    private static List<String> orders(int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> "order " + i).collect(Collectors.toList());
    }

    private static List<String> bodies(List<Delivery> deliveries) {
        return deliveries.stream().map(delivery -> new String(delivery.getBody(), StandardCharsets.UTF_8)).collect(Collectors.toList());
    }
}
