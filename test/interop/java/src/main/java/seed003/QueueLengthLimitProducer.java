package seed003;

import com.rabbitmq.client.Address;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;

public class QueueLengthLimitProducer {
    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(System.getenv("AMQP_URI"));
        Address[] addresses = {new Address(factory.getHost(), factory.getPort())};
        Connection connection = null;
        try {
            connection = factory.newConnection(addresses);
            Channel channel = connection.createChannel();

            // 声明死信交换机
            channel.exchangeDeclare("length.limit.dl.exchange.test", BuiltinExchangeType.TOPIC);
            Map<String, Object> params = new HashMap<>();
            params.put("x-dead-letter-exchange", "length.limit.dl.exchange.test");
            params.put("x-dead-letter-routing-key", "length.limit.dl.routing.key");
            // 队列最大长度为 5，队列存储的消息超过 5 个消息后，新的消息会被 "丢弃"，如果有死信队列，那么会被路由到死信队列
            // 默认丢弃最早的消息，可以通过设置 x-overflow 参数为 drop-head 或 reject-publish 来改变这种行为
            params.put("x-max-length", 5);
            // 声明死信队列
            channel.queueDeclare("length.limit.dl.queue.test", false, false, false, null);
            // 死信队列绑定到死信交换机
            channel.queueBind("length.limit.dl.queue.test", "length.limit.dl.exchange.test", "#.length.limit.dl.routing.key");

            // 声明普通队列，并绑定死信交换机
            channel.queueDeclare("length.limit.queue.test", false, false, false, params);
            // 将普通队列绑定到普通交换机
            channel.exchangeDeclare("length.limit.exchange.test", BuiltinExchangeType.TOPIC);
            channel.queueBind("length.limit.queue.test", "length.limit.exchange.test", "#.length.limit.routing.key");

            Scanner scanner = new Scanner(System.in);

            String message;
            System.out.print("> ");
            while (!(message = scanner.nextLine()).equalsIgnoreCase("q")) {
                channel.basicPublish("length.limit.exchange.test", "length.limit.routing.key", null, message.getBytes(StandardCharsets.UTF_8));
                System.out.print("> ");
            }

            channel.close();
        } catch (Exception e) {
            e.printStackTrace();
        } finally {
            if (connection != null) {
                connection.close();
            }
        }
    }
}
