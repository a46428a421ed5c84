package stories;

import static interop.Interop.await;

import com.rabbitmq.client.amqp.Publisher;
import com.rabbitmq.client.amqp.Resource;
import interop.Interop;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The broker is killed: what was accepted is there, and the client's own recovery brings back the connection, its
 * publishers and consumers, and the exclusive queue that it had declared.
 */
final class Reconnect {
    private static final int MESSAGES = 20;
    private static final int CREDIT = 5;

    private Reconnect() {}

    static void play() throws Exception {
        CountDownLatch recovered = new CountDownLatch(1);
        Resource.StateListener listener = change -> {
            if (change.previousState() == Resource.State.RECOVERING && change.currentState() == Resource.State.OPEN) {
                recovered.countDown();
            }
        };
        try (Client client = new Client(listener)) {
            client.management.queue("orders").declare();
            client.publishNumbers("orders", 0, MESSAGES);
            client.management.queue("own").exclusive(true).declare();
            client.bind("own", "news", "today");
            Publisher news = client.connection.publisherBuilder().exchange("news").key("today").build();

            Set<String> taken = ConcurrentHashMap.newKeySet();
            AtomicInteger held = new AtomicInteger();
            client.connection.consumerBuilder().queue("orders").initialCredits(CREDIT).messageHandler((context, message) -> {
                if (held.incrementAndGet() > CREDIT) { // what came before the kill stays unsettled
                    taken.add(new String(message.body(), StandardCharsets.UTF_8));
                    context.accept();
                }
            }).build();
            Set<String> heard = ConcurrentHashMap.newKeySet();
            client.connection.consumerBuilder().queue("own").messageHandler((context, message) -> {
                heard.add(new String(message.body(), StandardCharsets.UTF_8));
                context.accept();
            }).build();

            await("the credit", held::get, size -> size == CREDIT);
            Interop.restart();
            Interop.check(recovered.await(30, TimeUnit.SECONDS), "the client has not recovered its connection in 30 s");

            await("all messages at the recovered consumer", taken::size, size -> size == MESSAGES);
            await("an empty queue", () -> client.management.queueInfo("orders").messageCount(), count -> count == 0);
            Client.publish(news, "again");
            await("a message in the recovered exclusive queue", () -> heard.contains("again"));
        }
    }
}
