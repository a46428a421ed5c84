package seed003;

import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

public class NormalConsumer {
    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URI"));
        Connection connection = factory.newConnection();
        Channel channel = connection.createChannel();
        CountDownLatch lines = new CountDownLatch(Integer.parseInt(args[0]));

        try {
            // 声明死信交换机
            channel.exchangeDeclare("dl.exchange.test", BuiltinExchangeType.TOPIC);
            Map<String, Object> params = new HashMap<>();
            params.put("x-dead-letter-exchange", "dl.exchange.test");
            params.put("x-dead-letter-routing-key", "dl.routing.key");
            // 声明死信队列
            channel.queueDeclare("dl.queue.test", false, false, false, null);
            // 将死信队列绑定到死信交换机
            channel.queueBind("dl.queue.test", "dl.exchange.test", "#.dl.routing.key");

            // 声明普通队列，并绑定死信交换机
            channel.queueDeclare("normal.queue.test", false, false, false, params);
            // 将普通队列绑定到普通交换机
            channel.queueBind("normal.queue.test", "normal.exchange.test", "*.normal.routing.key");

            boolean autoAck = false;
            channel.basicConsume("normal.queue.test", autoAck, (consumerTag, delivery) -> {
                String message = new String(delivery.getBody());
                System.out.println(" [x] channel reject '" + message + "'");
                // 触发死信
                channel.basicReject(delivery.getEnvelope().getDeliveryTag(), false);
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
