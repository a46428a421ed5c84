package stories;

import static interop.Interop.await;
import static interop.Interop.equal;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Return;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CopyOnWriteArrayList;

/** Each publish is confirmed, by waiting and by listener; what has no queue comes back first (BR-8.2, BR-8.5). */
final class Confirms {
    private static final int MESSAGES = 50;

    private Confirms() {}

    static void play() throws Exception {
        try (Connection connection = Client.connect()) {
            Channel channel = connection.createChannel();
            Client.declare(channel, "orders", null);
            AMQP.Confirm.SelectOk selected = channel.confirmSelect();
            equal("SelectOk", selected.getClass().getSimpleName(), "answer to confirm.select");

            ConcurrentSkipListSet<Long> open = new ConcurrentSkipListSet<>();
            List<Long> refused = new CopyOnWriteArrayList<>();
            List<Return> returned = new CopyOnWriteArrayList<>();
            List<Integer> openAtReturn = new CopyOnWriteArrayList<>();
            channel.addReturnListener(message -> {
                openAtReturn.add(open.size());
                returned.add(message);
            });
            channel.addConfirmListener(
                    (tag, multiple) -> (multiple ? open.headSet(tag, true) : open.subSet(tag, true, tag, true)).clear(),
                    (tag, multiple) -> refused.add(tag));

            for (int i = 0; i < MESSAGES; i++) {
                open.add(channel.getNextPublishSeqNo());
                channel.basicPublish("", "orders", true, MessageProperties.PERSISTENT_BASIC, ("order " + i).getBytes(StandardCharsets.UTF_8));
            }
            channel.waitForConfirmsOrDie(10_000);
            await("all confirms at the listener", open::isEmpty);
            equal(0, returned.size(), "returned messages");

            open.add(channel.getNextPublishSeqNo());
            channel.basicPublish("", "nowhere", true, MessageProperties.PERSISTENT_BASIC, "lost".getBytes(StandardCharsets.UTF_8));
            channel.waitForConfirmsOrDie(10_000);
            await("the confirm of the returned message", open::isEmpty);
            equal(1, returned.size(), "returned messages");
            Return back = returned.get(0);
            equal(AMQP.NO_ROUTE, back.getReplyCode(), "reply code");
            equal("NO_ROUTE", back.getReplyText(), "reply text");
            equal("", back.getExchange(), "exchange of the return");
            equal("nowhere", back.getRoutingKey(), "routing key of the return");
            equal("lost", new String(back.getBody(), StandardCharsets.UTF_8), "body of the return");
            equal(List.of(1), openAtReturn, "confirms open at the return");
            equal(List.of(), refused, "nacks");
            Client.depth(channel, "orders", MESSAGES);
        }
    }
}
