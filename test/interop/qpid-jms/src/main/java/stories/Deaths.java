package stories;

import static interop.Interop.check;
import static interop.Interop.equal;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.message.JmsMessage;
import org.apache.qpid.jms.provider.amqp.message.AmqpJmsMessageFacade;

/** Outcomes of what is consumed, and what they leave on the message. */
final class Deaths {
    private Deaths() {}

    static void reject() throws Exception {
        Client.declare("work", "{\"x-dead-letter-exchange\":\"dlx\",\"x-dead-letter-routing-key\":\"dead\"}");
        Client.bind("work", "jobs", "job");
        Client.declare("dead", "{}");
        Client.bind("dead", "dlx", "dead");
        try (Client client = Client.connect(1)) {
            TextMessage broken = client.session.createTextMessage("broken");
            broken.setStringProperty("trace", "t1");
            try (MessageProducer producer = client.producer("/exchanges/jobs/job")) {
                producer.send(broken);
            }
            Client.settle(Client.take(client.consumer("work")), Client.REJECTED);
            Message dead = client.takeOne("dead");
            equal("broken", Client.body(dead), "body");
            equal(broken.getJMSMessageID(), dead.getJMSMessageID(), "message id");
            equal("t1", dead.getStringProperty("trace"), "application property trace");
            equal("dlx", annotation(dead, "x-exchange"), "x-exchange");
            equal("dead", annotation(dead, "x-routing-key"), "x-routing-key");
            rejected(dead);
        }
    }

    /** An annotation of the message. JMS has none: the client itself reads them for traces. */
    private static Object annotation(Message message, String name) {
        return ((AmqpJmsMessageFacade) ((JmsMessage) message).getFacade()).getTracingAnnotation(name);
    }

    /** Checks what annotations say of a message from exchange jobs, rejected in work. */
    private static void rejected(Message message) {
        equal(1, of(message).size(), "number of deaths");
        Map<String, Object> death = of(message).get(0);
        Object first = death.remove("first-time");
        equal(first, death.remove("last-time"), "last-time");
        check(first instanceof Date, "first-time is no timestamp: %s", first);
        long age = System.currentTimeMillis() - ((Date) first).getTime();
        check(age > -5_000 && age < 60_000, "first-time is %d ms ago", age);
        equal(Map.of("queue", "work", "reason", "rejected", "count", 1L, "exchange", "jobs", "routing-keys", List.of("job")), death, "x-opt-deaths");
        for (String which : List.of("first", "last")) {
            Map.of("reason", "rejected", "queue", "work", "exchange", "jobs").forEach((key, want) -> {
                String name = "x-" + which + "-death-" + key;
                equal(want, annotation(message, name), name);
            });
        }
    }

    /** The elements of x-opt-deaths, with what the client makes of their types: symbols and unsigned numbers are its own classes. */
    private static List<Map<String, Object>> of(Message message) {
        List<Map<String, Object>> deaths = new ArrayList<>();
        Object[] array = (Object[]) annotation(message, "x-opt-deaths");
        for (Object element : array == null ? new Object[0] : array) {
            Map<String, Object> death = new HashMap<>();
            ((Map<?, ?>) element).forEach((key, value) -> {
                if (value instanceof Number) {
                    death.put(key.toString(), ((Number) value).longValue());
                } else if (value instanceof Object[]) {
                    death.put(key.toString(), List.of((Object[]) value));
                } else {
                    death.put(key.toString(), value instanceof Date ? value : value.toString());
                }
            });
            deaths.add(death);
        }
        return deaths;
    }

    /** How often the message died in the queue for the reason. */
    private static long count(Message message, String queue, String reason) {
        return of(message).stream()
                .filter(death -> death.get("queue").equals(queue) && death.get("reason").equals(reason))
                .mapToLong(death -> (Long) death.get("count"))
                .findFirst()
                .orElse(0);
    }

    static void retry() throws Exception {
        Client.declare("work", "{\"x-dead-letter-exchange\":\"\",\"x-dead-letter-routing-key\":\"wait\"}");
        Client.declare("wait", "{\"x-message-ttl\":200,\"x-dead-letter-exchange\":\"\",\"x-dead-letter-routing-key\":\"work\"}");
        Client.declare("parked", "{}");
        try (Client client = Client.connect(1)) {
            client.publish("/queues/work", "again");
            List<List<Long>> seen = new ArrayList<>();
            MessageConsumer work = client.consumer("work");
            while (true) {
                Message message = Client.take(work);
                long rejected = count(message, "work", "rejected");
                seen.add(List.of(rejected, count(message, "wait", "expired")));
                if (rejected < 3) {
                    Client.settle(message, Client.REJECTED);
                    continue;
                }
                client.publish("/queues/parked", Client.body(message));
                message.acknowledge();
                break;
            }
            equal(List.of(List.of(0L, 0L), List.of(1L, 1L), List.of(2L, 2L), List.of(3L, 3L)), seen, "counts of rejected and expired");
            equal("again", Client.body(client.takeOne("parked")), "parked");
        }
        Client.ready(0, "work");
        Client.ready(0, "wait");
    }

    /** Declares work as a quorum queue, which counts, with dead for its dead letters. */
    private static void counting(Client client) throws Exception {
        Client.declare("work", "{\"x-queue-type\":\"quorum\",\"x-dead-letter-exchange\":\"\",\"x-dead-letter-routing-key\":\"dead\"}");
        Client.declare("dead", "{}");
        client.publish("/queues/work", "order");
    }

    /** Checks the delivery-count, as JMS says it: from 1. */
    private static void delivered(int want, Message message) throws JMSException {
        equal(want, message.getIntProperty("JMSXDeliveryCount"), "JMSXDeliveryCount");
        equal(want > 1, message.getJMSRedelivered(), "JMSRedelivered");
    }

    /** JMS has no annotations to give with an outcome. */
    static void modify() throws Exception {
        try (Client client = Client.connect(1)) {
            counting(client);
            MessageConsumer work = client.consumer("work");
            Message first = Client.take(work);
            delivered(1, first);
            Client.settle(first, Client.MODIFIED_FAILED);
            Message second = Client.take(work);
            delivered(2, second);
            Client.settle(second, Client.MODIFIED_FAILED_UNDELIVERABLE);
            Message dead = client.takeOne("dead");
            equal("order", Client.body(dead), "body");
            equal(1L, count(dead, "work", "rejected"), "deaths");
        }
    }

    static void release() throws Exception {
        try (Client client = Client.connect(1)) {
            counting(client);
            MessageConsumer work = client.consumer("work");
            for (long i = 0; i < 3; i++) {
                Message message = Client.take(work);
                delivered(1, message);
                equal(i == 0 ? null : (Object) i, annotation(message, "x-acquired-count"), "x-acquired-count");
                Client.settle(message, Client.RELEASED);
            }
            Client.take(work).acknowledge();
        }
        Client.ready(0, "work");
        Client.ready(0, "dead");
    }
}
