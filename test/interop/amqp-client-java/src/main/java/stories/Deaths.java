package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import com.rabbitmq.client.amqp.Management;
import com.rabbitmq.client.amqp.Message;
import com.rabbitmq.client.amqp.Publisher;
import java.lang.reflect.Array;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import stories.Client.Delivery;
import stories.Client.Inbox;

/** Outcomes of what is consumed, and what they leave on the message. */
final class Deaths {
    private Deaths() {}

    static void reject() throws Exception {
        try (Client client = new Client()) {
            client.management.queue("work").deadLetterExchange("dlx").deadLetterRoutingKey("dead").declare();
            client.bind("work", "jobs", "job");
            client.management.queue("dead").declare();
            client.bind("dead", "dlx", "dead");
            try (Publisher publisher = client.connection.publisherBuilder().exchange("jobs").key("job").build()) {
                Message broken = publisher.message("broken".getBytes()).messageId("m-1").property("trace", "t-1");
                equal(Publisher.Status.ACCEPTED, Client.outcome(publisher, broken), "outcome");
            }
            try (Inbox inbox = new Inbox(client, "work", 1)) {
                Delivery doomed = inbox.take();
                header(true, 0, doomed.message());
                doomed.context().discard();
                Message dead = client.takeOne("dead");
                equal("broken", new String(dead.body()), "body");
                equal("m-1", dead.messageId(), "message id");
                equal("t-1", dead.property("trace"), "application property trace");
                equal(false, dead.firstAcquirer(), "first-acquirer");
                equal("dlx", dead.annotation("x-exchange"), "x-exchange");
                equal("dead", dead.annotation("x-routing-key"), "x-routing-key");
                rejected(dead);
            }
        }
    }

    /** Checks what annotations say of a message from exchange jobs, rejected in work. */
    private static void rejected(Message message) {
        List<Map<String, Object>> deaths = of(message);
        equal(1, deaths.size(), "number of deaths");
        Map<String, Object> death = new HashMap<>(deaths.get(0));
        Object first = death.remove("first-time");
        equal(first, death.remove("last-time"), "last-time");
        check(first instanceof Long, "first-time is no timestamp: %s", first); // the client's type for one in a map
        long age = System.currentTimeMillis() - (Long) first;
        check(age > -5_000 && age < 60_000, "first-time is %d ms ago", age);
        equal(Map.of("queue", "work", "reason", "rejected", "count", 1L, "exchange", "jobs", "routing-keys", List.of("job")), death, "x-opt-deaths");
        for (String which : List.of("first", "last")) {
            Map.of("reason", "rejected", "queue", "work", "exchange", "jobs").forEach((key, want) -> {
                String name = "x-" + which + "-death-" + key;
                equal(want, message.annotation(name), name);
            });
        }
    }

    /** The elements of x-opt-deaths, with what the client makes of their types: symbols and unsigned numbers are its own classes. */
    private static List<Map<String, Object>> of(Message message) {
        List<Map<String, Object>> deaths = new ArrayList<>();
        Object array = message.hasAnnotation("x-opt-deaths") ? message.annotation("x-opt-deaths") : new Object[0];
        for (Object element : list(array)) {
            Map<String, Object> death = new HashMap<>();
            ((Map<?, ?>) element).forEach((key, value) -> {
                if (value instanceof Number) {
                    death.put(key.toString(), ((Number) value).longValue());
                } else if (value.getClass().isArray()) {
                    death.put(key.toString(), list(value));
                } else {
                    death.put(key.toString(), value.toString());
                }
            });
            deaths.add(death);
        }
        return deaths;
    }

    private static List<Object> list(Object array) {
        List<Object> elements = new ArrayList<>();
        for (int i = 0; i < Array.getLength(array); i++) {
            elements.add(Array.get(array, i));
        }
        return elements;
    }

    /** How often the message died in the queue for the reason. */
    private static long count(Message message, String queue, String reason) {
        return of(message).stream()
                .filter(death -> death.get("queue").equals(queue) && death.get("reason").equals(reason))
                .mapToLong(death -> (Long) death.get("count"))
                .findFirst()
                .orElse(0);
    }

    /** Checks what the header says of earlier deliveries. */
    private static void header(boolean firstAcquirer, long deliveryCount, Message message) {
        equal(firstAcquirer, message.firstAcquirer(), "first-acquirer");
        equal(deliveryCount, message.deliveryCount(), "delivery-count");
    }

    static void retry() throws Exception {
        try (Client client = new Client()) {
            client.management.queue("work").deadLetterExchange("").deadLetterRoutingKey("wait").declare();
            client.management.queue("wait").messageTtl(Duration.ofMillis(200)).deadLetterExchange("").deadLetterRoutingKey("work").declare();
            client.management.queue("parked").declare();
            try (Publisher work = client.connection.publisherBuilder().queue("work").build();
                    Publisher parked = client.connection.publisherBuilder().queue("parked").build();
                    Inbox inbox = new Inbox(client, "work", 1)) {
                Client.publish(work, "again");
                List<List<Long>> seen = new ArrayList<>();
                while (true) {
                    Delivery delivery = inbox.take();
                    long rejected = count(delivery.message(), "work", "rejected");
                    seen.add(List.of(rejected, count(delivery.message(), "wait", "expired")));
                    if (rejected < 3) {
                        delivery.context().discard();
                        continue;
                    }
                    Client.publish(parked, delivery.body());
                    delivery.context().accept();
                    break;
                }
                equal(List.of(List.of(0L, 0L), List.of(1L, 1L), List.of(2L, 2L), List.of(3L, 3L)), seen, "counts of rejected and expired");
            }
            equal("again", new String(client.takeOne("parked").body()), "parked");
            client.ready(0, "work", "left in work");
            client.ready(0, "wait", "left in wait");
        }
    }

    /** Declares work as a quorum queue, which counts and keeps annotations of outcomes, with dead for its dead letters. */
    private static void counting(Client client) throws Exception {
        client.management.queue("work").type(Management.QueueType.QUORUM).deadLetterExchange("").deadLetterRoutingKey("dead").declare();
        client.management.queue("dead").declare();
        try (Publisher publisher = client.connection.publisherBuilder().queue("work").build()) {
            Client.publish(publisher, "order");
        }
    }

    static void modify() throws Exception {
        try (Client client = new Client()) {
            counting(client);
            try (Inbox inbox = new Inbox(client, "work", 1)) {
                Delivery first = inbox.take();
                header(true, 0, first.message());
                equal(false, first.message().hasAnnotation("x-opt-attempt"), "annotated at first");
                first.context().requeue(Map.of("x-opt-attempt", "first"), true);
                Delivery second = inbox.take();
                header(false, 1, second.message());
                equal("first", second.message().annotation("x-opt-attempt"), "x-opt-attempt");
                second.context().requeue(Map.of("x-opt-attempt", "second"));
                Delivery third = inbox.take();
                header(false, 1, third.message());
                equal("second", third.message().annotation("x-opt-attempt"), "x-opt-attempt");
                third.context().discard(Map.of("x-opt-why", "no customer"));
            }
            Message dead = client.takeOne("dead");
            equal("order", new String(dead.body()), "body");
            equal("second", dead.annotation("x-opt-attempt"), "x-opt-attempt");
            equal("no customer", dead.annotation("x-opt-why"), "x-opt-why");
            equal(1L, count(dead, "work", "rejected"), "deaths");
            equal(false, dead.firstAcquirer(), "first-acquirer");
        }
    }

    static void release() throws Exception {
        try (Client client = new Client()) {
            counting(client);
            try (Inbox inbox = new Inbox(client, "work", 1)) {
                for (long i = 0; i < 3; i++) {
                    Delivery delivery = inbox.take();
                    header(i == 0, 0, delivery.message());
                    equal(i == 0 ? null : (Object) i, delivery.message().annotation("x-acquired-count"), "x-acquired-count");
                    delivery.context().requeue();
                }
                inbox.take().context().accept();
            }
            client.ready(0, "work", "left in work");
            client.ready(0, "dead", "dead");
        }
    }
}
