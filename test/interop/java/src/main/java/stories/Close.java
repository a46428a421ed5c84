package stories;

import static interop.Interop.await;
import static interop.Interop.check;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ShutdownSignalException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A channel and a connection that their application closes, with a message under way, tell that it was the application. */
final class Close {
    private static final int TIMES = 50;

    private Close() {}

    static void play() throws Exception {
        for (int i = 0; i < TIMES; i++) {
            List<ShutdownSignalException> told = new CopyOnWriteArrayList<>();
            Connection connection = Client.connect();
            Channel channel = connection.createChannel();
            connection.addShutdownListener(told::add);
            channel.addShutdownListener(told::add);
            Client.declare(channel, "orders", null);
            Client.publish(channel, "", "orders", "order");
            channel.close();
            connection.close();
            await("both are told", () -> told.size(), size -> size == 2);
            for (ShutdownSignalException cause : told) {
                check(cause.isInitiatedByApplication(), "after close a listener is told of %s", cause);
            }
        }
    }
}
