<?php
// The common stories with php-amqplib. It connects again when reconnect() is called.

require 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPConnectionClosedException;
use PhpAmqpLib\Exception\AMQPIOException;
use PhpAmqpLib\Exception\AMQPTimeoutException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

const PATIENCE = 20; // seconds for whatever must come about

function check(string $what, mixed $got, mixed $want): void
{
    if ($got !== $want) {
        throw new RuntimeException("$what is " . json_encode($got) . ', want ' . json_encode($want));
    }
}

function connect(): AMQPStreamConnection
{
    return new AMQPStreamConnection(getenv('AMQP_HOST'), getenv('AMQP_PORT'), 'guest', 'guest', getenv('AMQP_VHOST'));
}

/** A channel that confirms; a nack ends the story. */
function confirming(AMQPStreamConnection $connection): AMQPChannel
{
    $channel = $connection->channel();
    $channel->confirm_select();
    $channel->set_nack_handler(fn($message) => throw new RuntimeException("the broker did not confirm {$message->body}"));
    return $channel;
}

function persistent(string $body, array $more = []): AMQPMessage
{
    return new AMQPMessage($body, ['delivery_mode' => AMQPMessage::DELIVERY_MODE_PERSISTENT] + $more);
}

function declareQueue(AMQPChannel $channel, string $name, array $arguments = []): void
{
    $channel->queue_declare($name, durable: true, auto_delete: false, arguments: new AMQPTable($arguments));
}

function ready(AMQPChannel $channel, string $queue): int
{
    return $channel->queue_declare($queue, passive: true)[1];
}

/** The deliveries of a consumer, in order. */
final class Inbox
{
    /** @var AMQPMessage[] */
    public array $messages = [];

    public function __construct(private AMQPChannel $channel, string $queue)
    {
        $channel->basic_consume($queue, callback: function (AMQPMessage $message) {
            $this->messages[] = $message;
        });
    }

    /** Waits until n messages have come in all. */
    public function reach(int $n): array
    {
        $deadline = time() + PATIENCE;
        while (count($this->messages) < $n) {
            if (time() > $deadline) {
                throw new RuntimeException(count($this->messages) . " messages came, want $n");
            }
            try {
                $this->channel->wait(timeout: 1);
            } catch (AMQPTimeoutException) {
            }
        }
        return $this->messages;
    }
}

function bodies(array $messages): array
{
    return array_map(fn($message) => $message->body, $messages);
}

function numbers(int $from, int $to): array
{
    return array_map(strval(...), $from < $to ? range($from, $to - 1) : []);
}

function headers(AMQPMessage $message): array
{
    return $message->has('application_headers') ? $message->get('application_headers')->getNativeData() : [];
}

function countOf(array $headers, string $queue, string $reason): int
{
    foreach ($headers['x-death'] ?? [] as $death) {
        if ($death['queue'] === $queue && $death['reason'] === $reason) {
            return $death['count'];
        }
    }
    return 0;
}

/** Checks what headers say of a message from exchange jobs, rejected in work. */
function checkRejected(array $headers): void
{
    check('number of deaths', count($headers['x-death']), 1);
    $death = $headers['x-death'][0];
    $facts = ['reason' => 'rejected', 'queue' => 'work', 'exchange' => 'jobs'];
    foreach ($facts + ['count' => 1, 'routing-keys' => ['job']] as $key => $want) {
        check("x-death $key", $death[$key], $want);
    }
    $at = $death['time'] instanceof DateTimeInterface ? $death['time']->getTimestamp() : $death['time'];
    if (abs(time() - $at) > 60) {
        throw new RuntimeException("x-death time is $at, it is " . time());
    }
    foreach (['first', 'last'] as $which) {
        foreach ($facts as $key => $want) {
            check("x-$which-death-$key", $headers["x-$which-death-$key"], $want);
        }
    }
}

function confirms(): void
{
    $connection = connect();
    $channel = confirming($connection);
    declareQueue($channel, 'orders');
    $confirmed = 0;
    $channel->set_ack_handler(function () use (&$confirmed) {
        $confirmed++;
    });
    $returned = [];
    $channel->set_return_listener(function (int $code, $text, $exchange, $key, AMQPMessage $message) use (&$returned) {
        $returned[] = [$code, $message->body];
    });
    foreach (numbers(0, 50) as $body) {
        $channel->basic_publish(persistent($body), '', 'orders', mandatory: true);
    }
    $channel->wait_for_pending_acks_returns(PATIENCE);
    check('confirmations', $confirmed, 50);
    check('messages that came back', $returned, []);
    $channel->basic_publish(persistent('lost'), '', 'nowhere', mandatory: true);
    $channel->wait_for_pending_acks_returns(PATIENCE);
    check('confirmations', $confirmed, 51);
    check('what came back', $returned, [[312, 'lost']]);
    check('messages', ready($channel, 'orders'), 50);
    $connection->close();
}

function consume(): void
{
    $connection = connect();
    $watching = confirming($connection);
    declareQueue($watching, 'orders');
    foreach (numbers(0, 20) as $body) {
        $watching->basic_publish(persistent($body), '', 'orders');
    }
    $watching->wait_for_pending_acks(PATIENCE);

    $channel = $connection->channel();
    $channel->basic_qos(0, 5, false);
    $inbox = new Inbox($channel, 'orders');
    $inbox->reach(5);
    check('ready messages beyond the prefetch', ready($watching, 'orders'), 15);
    foreach (array_slice($inbox->messages, 0, 3) as $message) {
        $message->ack();
    }
    check('deliveries', count($inbox->reach(8)), 8);
    $channel->close();

    $channel = $connection->channel();
    $messages = (new Inbox($channel, 'orders'))->reach(17);
    check('bodies', bodies($messages), numbers(3, 20));
    check('redelivered', array_map(fn($m) => $m->isRedelivered(), $messages), [...array_fill(0, 5, true), ...array_fill(0, 12, false)]);
    end($messages)->ack(multiple: true);
    $channel->close();
    check('messages left', ready($watching, 'orders'), 0);
    $connection->close();
}

function reject(): void
{
    $connection = connect();
    $channel = confirming($connection);
    $channel->exchange_declare('jobs', 'direct', durable: true, auto_delete: false);
    $channel->exchange_declare('dlx', 'direct', durable: true, auto_delete: false);
    declareQueue($channel, 'work', ['x-dead-letter-exchange' => 'dlx', 'x-dead-letter-routing-key' => 'dead']);
    $channel->queue_bind('work', 'jobs', 'job');
    declareQueue($channel, 'dead');
    $channel->queue_bind('dead', 'dlx', 'dead');
    $properties = ['message_id' => 'm-1', 'application_headers' => new AMQPTable(['trace' => 't-1'])];
    $channel->basic_publish(persistent('broken', $properties), 'jobs', 'job');

    [$message] = (new Inbox($channel, 'work'))->reach(1);
    $message->reject(requeue: false);
    [$message] = (new Inbox($channel, 'dead'))->reach(1);
    check('body', $message->body, 'broken');
    check('message id', $message->get('message_id'), 'm-1');
    check('exchange and key', [$message->getExchange(), $message->getRoutingKey()], ['dlx', 'dead']);
    $headers = headers($message);
    check('header trace', $headers['trace'], 't-1');
    checkRejected($headers);
    $message->ack();
    $connection->close();
}

function retry(): void
{
    $connection = connect();
    $channel = confirming($connection);
    declareQueue($channel, 'work', ['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => 'wait']);
    declareQueue($channel, 'wait', ['x-message-ttl' => 200, 'x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => 'work']);
    declareQueue($channel, 'parked');
    $channel->basic_publish(persistent('again'), '', 'work');
    $seen = [];
    $inbox = new Inbox($channel, 'work');
    for ($attempt = 1; $attempt <= 4; $attempt++) {
        $message = $inbox->reach($attempt)[$attempt - 1];
        $headers = headers($message);
        $rejected = countOf($headers, 'work', 'rejected');
        $seen[] = [$rejected, countOf($headers, 'wait', 'expired')];
        if ($rejected < 3) {
            $message->nack(requeue: false);
        } else {
            $channel->basic_publish(persistent($message->body), '', 'parked');
            $channel->wait_for_pending_acks(PATIENCE);
            $message->ack();
        }
    }
    check('counts of rejected and expired', $seen, [[0, 0], [1, 1], [2, 2], [3, 3]]);
    check('parked', $channel->basic_get('parked', no_ack: true)->body, 'again');
    check('left', [ready($channel, 'work'), ready($channel, 'wait')], [0, 0]);
    $connection->close();
}

function reconnect(): void
{
    $connection = connect();
    $channel = confirming($connection);
    $channel->exchange_declare('jobs', 'direct', durable: true, auto_delete: false);
    declareQueue($channel, 'work');
    $channel->queue_bind('work', 'jobs', 'job');
    foreach (numbers(0, 10) as $body) {
        $channel->basic_publish(persistent($body), 'jobs', 'job');
    }
    $channel->wait_for_pending_acks(PATIENCE);
    $channel->basic_qos(0, 3, false);
    $inbox = new Inbox($channel, 'work');
    foreach (array_slice($inbox->reach(3), 0, 3) as $message) {
        $message->ack();
    }
    $inbox->reach(6); // all that the prefetch lets come stays unacknowledged
    exec(getenv('INTEROP_RESTART'), $output, $status);
    check('status of the restart', $status, 0);
    try {
        $channel->wait(timeout: PATIENCE);
        throw new RuntimeException('the connection outlived its broker');
    } catch (AMQPConnectionClosedException | AMQPIOException) {
    }

    $connection->reconnect();
    $channel = confirming($connection);
    $channel->basic_publish(persistent('10'), 'jobs', 'job', mandatory: true);
    $channel->wait_for_pending_acks_returns(PATIENCE);
    $inbox = new Inbox($channel, 'work');
    for ($n = 1; bodies($inbox->reach($n))[$n - 1] !== '10'; $n++);
    // Acknowledgements have no answer: 0 to 2 may come again before the rest.
    $bodies = bodies($inbox->messages);
    check('bodies', array_slice($bodies, -8), numbers(3, 11));
    $again = array_slice($bodies, 0, -8);
    check('what comes again', $again, numbers(3 - count($again), 3));
    end($inbox->messages)->ack(multiple: true);
    $connection->close();
}

match ($argv[1]) {
    'confirms' => confirms(),
    'consume' => consume(),
    'reject' => reject(),
    'retry' => retry(),
    'reconnect' => reconnect(),
};
