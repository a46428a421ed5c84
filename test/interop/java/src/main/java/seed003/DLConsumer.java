package seed003;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.util.concurrent.CountDownLatch;

public class DLConsumer {
    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URI"));
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();
        CountDownLatch lines = new CountDownLatch(Integer.parseInt(args[0]));

        try {
            channel.basicConsume("dl.queue.test", true, (consumerTag, delivery) -> {
                String message = new String(delivery.getBody());
                System.out.println(" [x] channel Received DL message '" + message + "'");
                lines.countDown();
            }, consumerTag -> {
                System.out.println("channel cancel, consumerTag: " + consumerTag);
                lines.countDown();
            });

        } finally {
            //channel1.close();
            //connection.close();
        }
        lines.await();
        connection.close();
    }
}
