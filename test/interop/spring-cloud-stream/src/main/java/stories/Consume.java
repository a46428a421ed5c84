package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import com.rabbitmq.client.Channel;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.support.AmqpHeaders;
import org.springframework.cloud.stream.binding.BindingsLifecycleController;
import org.springframework.cloud.stream.binding.BindingsLifecycleController.State;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.Message;

/** A consumer with a prefetch that acknowledges by hand; its binding stopped, it gives back what it holds. */
final class Consume {
    private static final int MESSAGES = 20;
    private static final int PREFETCH = 5;
    private static final int DONE = 3; // acknowledged before the channel closes

    private Consume() {}

    static void play() throws Exception {
        try (ConfigurableApplicationContext context =
                App.start(List.of("acknowledge-mode=MANUAL", "prefetch=" + PREFETCH), List.of(), Holder.class)) {
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            Holder holder = context.getBean(Holder.class);
            BindingsLifecycleController bindings = context.getBean(BindingsLifecycleController.class);
            bindings.changeState("handle-in-0", State.STOPPED);
            for (int i = 0; i < MESSAGES; i++) {
                context.getBean(StreamBridge.class).send("orders", "order " + i);
            }
            Queues.depth(admin, "orders.work", MESSAGES);

            bindings.changeState("handle-in-0", State.STARTED);
            await("the prefetch", () -> holder.got.size(), size -> size == PREFETCH);
            Queues.depth(admin, "orders.work", MESSAGES - PREFETCH);
            holder.acknowledge(holder.got.get(DONE - 1), true);
            await("as many as were acknowledged", () -> holder.got.size(), size -> size == PREFETCH + DONE);
            check(holder.got, 0, PREFETCH + DONE, 0);
            bindings.changeState("handle-in-0", State.STOPPED);
            Queues.depth(admin, "orders.work", MESSAGES - DONE);

            holder.got.clear();
            holder.acknowledges = true;
            bindings.changeState("handle-in-0", State.STARTED);
            await("the rest", () -> holder.got.size(), size -> size == MESSAGES - DONE);
            check(holder.got, DONE, MESSAGES, PREFETCH);
            bindings.changeState("handle-in-0", State.STOPPED);
            Queues.depth(admin, "orders.work", 0);
        }
    }

    private static void check(List<Message<String>> got, int from, int to, int redelivered) {
        equal(IntStream.range(from, to).mapToObj(i -> "order " + i).collect(Collectors.toList()),
                got.stream().map(Message::getPayload).collect(Collectors.toList()), "deliveries");
        equal(IntStream.range(from, to).mapToObj(i -> i < from + redelivered).collect(Collectors.toList()),
                got.stream().map(message -> message.getHeaders().get(AmqpHeaders.REDELIVERED)).collect(Collectors.toList()), "redelivered");
    }

    static class Holder {
        final List<Message<String>> got = new CopyOnWriteArrayList<>();
        volatile boolean acknowledges;

        @Bean
        Consumer<Message<String>> handle() {
            return message -> {
                if (acknowledges) {
                    acknowledge(message, false);
                }
                got.add(message);
            };
        }

        void acknowledge(Message<String> message, boolean andAllBefore) {
            try {
                message.getHeaders().get(AmqpHeaders.CHANNEL, Channel.class)
                        .basicAck(message.getHeaders().get(AmqpHeaders.DELIVERY_TAG, Long.class), andAllBefore);
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
    }
}
