package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import com.rabbitmq.client.Channel;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.springframework.amqp.core.AmqpAdmin;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.RabbitListenerEndpointRegistry;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/** A listener with a prefetch that acknowledges by hand, in both kinds of container; stopped, it gives back what it holds. */
final class Consume {
    private static final int MESSAGES = 20;
    private static final int PREFETCH = 5;
    private static final int DONE = 3; // acknowledged before the channel closes

    private Consume() {}

    static void simple() throws Exception {
        play("simple");
    }

    static void direct() throws Exception {
        play("direct");
    }

    private static void play(String container) throws Exception {
        List<String> properties = List.of(
                "spring.rabbitmq.listener.type=" + container,
                "spring.rabbitmq.listener." + container + ".prefetch=" + PREFETCH,
                "spring.rabbitmq.listener." + container + ".acknowledge-mode=manual",
                "spring.rabbitmq.listener." + container + ".auto-startup=false");
        try (ConfigurableApplicationContext context = App.start(properties, Holder.class)) {
            RabbitTemplate template = context.getBean(RabbitTemplate.class);
            AmqpAdmin admin = context.getBean(AmqpAdmin.class);
            Holder holder = context.getBean(Holder.class);
            RabbitListenerEndpointRegistry containers = context.getBean(RabbitListenerEndpointRegistry.class);
            for (int i = 0; i < MESSAGES; i++) {
                template.convertAndSend("orders", "order " + i);
            }
            Queues.depth(admin, "orders", MESSAGES);

            containers.start();
            await("the prefetch", () -> holder.got.size(), size -> size == PREFETCH);
            Queues.depth(admin, "orders", MESSAGES - PREFETCH);
            holder.channel.basicAck(holder.got.get(DONE - 1).getMessageProperties().getDeliveryTag(), true);
            await("as many as were acknowledged", () -> holder.got.size(), size -> size == PREFETCH + DONE);
            check(holder.got, 0, PREFETCH + DONE, 0);
            containers.stop();
            Queues.depth(admin, "orders", MESSAGES - DONE);

            holder.got.clear();
            holder.acknowledges = true;
            containers.start();
            await("the rest", () -> holder.got.size(), size -> size == MESSAGES - DONE);
            check(holder.got, DONE, MESSAGES, PREFETCH);
            containers.stop();
            Queues.depth(admin, "orders", 0);
        }
    }

    private static void check(List<Message> got, int from, int to, int redelivered) {
        equal(IntStream.range(from, to).mapToObj(i -> "order " + i).collect(Collectors.toList()),
                got.stream().map(Queues::text).collect(Collectors.toList()), "deliveries");
        equal(IntStream.range(from, to).mapToObj(i -> i < from + redelivered).collect(Collectors.toList()),
                got.stream().map(message -> message.getMessageProperties().isRedelivered()).collect(Collectors.toList()), "redelivered");
    }

    static class Holder {
        final List<Message> got = new CopyOnWriteArrayList<>();
        volatile Channel channel;
        volatile boolean acknowledges;

        @Bean
        Queue orders() {
            return new Queue("orders");
        }

        @RabbitListener(queues = "orders")
        void take(Message message, Channel channel) throws Exception {
            this.channel = channel;
            if (acknowledges) {
                channel.basicAck(message.getMessageProperties().getDeliveryTag(), false);
            }
            got.add(message);
        }
    }
}
