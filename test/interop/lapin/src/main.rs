//! The common stories with lapin. It connects again by itself where recovery is enabled.

mod death;

use std::time::Duration;

use futures_lite::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions, BasicRejectOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer, ExchangeKind};

use death::{check_rejected, count_of};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How long whatever must come about may take.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result {
    let story = std::env::args().nth(1).ok_or("which story?")?;
    match story.as_str() {
        "confirms" => confirms().await,
        "consume" => consume().await,
        "reject" => reject().await,
        "retry" => retry().await,
        "close" => close().await,
        "reconnect" => reconnect().await,
        _ => Err(format!("no story {story}").into()),
    }
}

async fn connect(properties: ConnectionProperties) -> Result<Connection> {
    Ok(Connection::connect(&std::env::var("AMQP_URI")?, properties).await?)
}

/// A channel that confirms what is published.
async fn confirming(connection: &Connection) -> Result<Channel> {
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// Publishes a persistent message and waits until it is confirmed; returns whether it came back.
async fn publish(channel: &Channel, exchange: &str, key: &str, body: &str, properties: BasicProperties) -> lapin::Result<Option<(u16, Vec<u8>)>> {
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let properties = properties.with_delivery_mode(2);
    let confirmation = channel.basic_publish(exchange.into(), key.into(), options, body.as_bytes(), properties).await?.await?;
    assert!(confirmation.is_ack(), "the broker did not confirm {body}: {confirmation:?}");
    Ok(confirmation.take_message().map(|message| (message.reply_code, message.delivery.data)))
}

async fn publish_numbers(channel: &Channel, exchange: &str, key: &str, n: usize) -> Result {
    for i in 0..n {
        assert_eq!(publish(channel, exchange, key, &i.to_string(), BasicProperties::default()).await?, None, "message {i} came back");
    }
    Ok(())
}

fn dead_letter_to(exchange: &str, key: &str) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(exchange.into()));
    arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(key.into()));
    arguments
}

async fn declare(channel: &Channel, queue: &str, arguments: FieldTable) -> Result {
    channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await?;
    Ok(())
}

/// Declares a durable direct exchange and binds the queue to it.
async fn bind(channel: &Channel, queue: &str, exchange: &str, key: &str) -> Result {
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    channel.exchange_declare(exchange.into(), ExchangeKind::Direct, durable, FieldTable::default()).await?;
    channel.queue_bind(queue.into(), exchange.into(), key.into(), QueueBindOptions::default(), FieldTable::default()).await?;
    Ok(())
}

async fn ready(channel: &Channel, queue: &str) -> Result<u32> {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    Ok(channel.queue_declare(queue.into(), passive, FieldTable::default()).await?.message_count())
}

async fn consumer(channel: &Channel, queue: &str) -> Result<Consumer> {
    Ok(channel.basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default()).await?)
}

async fn next(consumer: &mut Consumer) -> Result<Delivery> {
    let delivery = tokio::time::timeout(PATIENCE, consumer.next()).await.map_err(|_| "no delivery came")?;
    Ok(delivery.ok_or("the consumer was cancelled")??)
}

async fn take(consumer: &mut Consumer, n: usize) -> Result<Vec<Delivery>> {
    let mut deliveries = Vec::new();
    while deliveries.len() < n {
        deliveries.push(next(consumer).await?);
    }
    Ok(deliveries)
}

fn body(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.data).into_owned()
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| i.to_string()).collect()
}

async fn confirms() -> Result {
    let connection = connect(ConnectionProperties::default()).await?;
    let channel = confirming(&connection).await?;
    declare(&channel, "orders", FieldTable::default()).await?;
    publish_numbers(&channel, "", "orders", 50).await?;
    let returned = publish(&channel, "", "nowhere", "lost", BasicProperties::default()).await?;
    assert_eq!(returned, Some((312, b"lost".to_vec())), "what comes back of a message without a route");
    assert_eq!(ready(&channel, "orders").await?, 50, "messages");
    connection.close(200, "".into()).await?;
    Ok(())
}

async fn consume() -> Result {
    let connection = connect(ConnectionProperties::default()).await?;
    let watching = confirming(&connection).await?;
    declare(&watching, "orders", FieldTable::default()).await?;
    publish_numbers(&watching, "", "orders", 20).await?;

    let channel = connection.create_channel().await?;
    channel.basic_qos(5, BasicQosOptions::default()).await?;
    let mut incoming = consumer(&channel, "orders").await?;
    let first = take(&mut incoming, 5).await?;
    assert_eq!(ready(&watching, "orders").await?, 15, "ready messages beyond the prefetch");
    for delivery in &first[..3] {
        delivery.ack(BasicAckOptions::default()).await?;
    }
    take(&mut incoming, 3).await?;
    assert_eq!(ready(&watching, "orders").await?, 12, "ready messages after three acknowledgements");
    channel.close(200, "".into()).await?;

    let channel = connection.create_channel().await?;
    let mut incoming = consumer(&channel, "orders").await?;
    let deliveries = take(&mut incoming, 17).await?;
    assert_eq!(deliveries.iter().map(body).collect::<Vec<_>>(), numbers(3..20), "bodies");
    let redelivered: Vec<bool> = deliveries.iter().map(|d| d.redelivered).collect();
    assert_eq!(redelivered, [[true; 5].as_slice(), &[false; 12]].concat(), "redelivered");
    deliveries[16].ack(BasicAckOptions { multiple: true }).await?;
    channel.close(200, "".into()).await?;
    assert_eq!(ready(&watching, "orders").await?, 0, "messages left");
    connection.close(200, "".into()).await?;
    Ok(())
}

async fn reject() -> Result {
    let connection = connect(ConnectionProperties::default()).await?;
    let channel = confirming(&connection).await?;
    declare(&channel, "work", dead_letter_to("dlx", "dead")).await?;
    bind(&channel, "work", "jobs", "job").await?;
    declare(&channel, "dead", FieldTable::default()).await?;
    bind(&channel, "dead", "dlx", "dead").await?;
    let mut headers = FieldTable::default();
    headers.insert("trace".into(), AMQPValue::LongString("t-1".into()));
    let properties = BasicProperties::default().with_message_id("m-1".into()).with_headers(headers);
    publish(&channel, "jobs", "job", "broken", properties).await?;

    let mut work = consumer(&channel, "work").await?;
    next(&mut work).await?.reject(BasicRejectOptions { requeue: false }).await?;
    let mut dead = consumer(&channel, "dead").await?;
    let delivery = next(&mut dead).await?;
    assert_eq!(body(&delivery), "broken", "body");
    assert_eq!(delivery.properties.message_id().as_ref().map(|id| id.as_str()), Some("m-1"), "message id");
    assert_eq!((delivery.exchange.as_str(), delivery.routing_key.as_str()), ("dlx", "dead"), "exchange and key");
    let headers = delivery.properties.headers().as_ref().ok_or("the dead letter has no headers")?;
    assert_eq!(headers.inner().get("trace"), Some(&AMQPValue::LongString(LongString::from("t-1"))), "header trace");
    check_rejected(headers)?;
    delivery.ack(BasicAckOptions::default()).await?;
    connection.close(200, "".into()).await?;
    Ok(())
}

async fn retry() -> Result {
    let connection = connect(ConnectionProperties::default()).await?;
    let channel = confirming(&connection).await?;
    declare(&channel, "work", dead_letter_to("", "wait")).await?;
    let mut arguments = dead_letter_to("", "work");
    arguments.insert("x-message-ttl".into(), AMQPValue::LongInt(200));
    declare(&channel, "wait", arguments).await?;
    declare(&channel, "parked", FieldTable::default()).await?;
    publish(&channel, "", "work", "again", BasicProperties::default()).await?;

    let mut incoming = consumer(&channel, "work").await?;
    let mut seen = Vec::new();
    loop {
        let delivery = next(&mut incoming).await?;
        let headers = delivery.properties.headers().clone().unwrap_or_default();
        let rejected = count_of(&headers, "work", "rejected");
        seen.push((rejected, count_of(&headers, "wait", "expired")));
        if rejected < 3 {
            delivery.nack(BasicNackOptions { requeue: false, ..Default::default() }).await?;
            continue;
        }
        publish(&channel, "", "parked", &body(&delivery), BasicProperties::default()).await?;
        delivery.ack(BasicAckOptions::default()).await?;
        break;
    }
    assert_eq!(seen, [(0, 0), (1, 1), (2, 2), (3, 3)], "counts of rejected and expired");
    let parked = channel.basic_get("parked".into(), BasicGetOptions { no_ack: true }).await?.ok_or("nothing is parked")?;
    assert_eq!(body(&parked.delivery), "again", "parked");
    assert_eq!((ready(&channel, "work").await?, ready(&channel, "wait").await?), (0, 0), "left");
    connection.close(200, "".into()).await?;
    Ok(())
}

/// Closes channels and connections with a message under way: no event tells of an error.
async fn close() -> Result {
    for _ in 0..50 {
        let connection = connect(ConnectionProperties::default()).await?;
        let mut events = connection.events_listener();
        let channel = confirming(&connection).await?;
        declare(&channel, "orders", FieldTable::default()).await?;
        channel.basic_publish("".into(), "orders".into(), BasicPublishOptions::default(), b"0", BasicProperties::default()).await?;
        channel.close(200, "".into()).await?;
        connection.close(200, "".into()).await?;
        drop((channel, connection));
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(20), events.next()).await {
            assert!(!matches!(event, lapin::Event::Error(_)), "after close there is {event:?}");
        }
    }
    Ok(())
}

async fn reconnect() -> Result {
    let connection = connect(ConnectionProperties::default().enable_auto_recover()).await?;
    let channel = confirming(&connection).await?;
    declare(&channel, "work", FieldTable::default()).await?;
    bind(&channel, "work", "jobs", "job").await?;
    publish_numbers(&channel, "jobs", "job", 10).await?;
    let consuming = connection.create_channel().await?;
    consuming.basic_qos(3, BasicQosOptions::default()).await?;
    let mut incoming = consumer(&consuming, "work").await?;
    for delivery in take(&mut incoming, 3).await? {
        delivery.ack(BasicAckOptions::default()).await?;
    }
    take(&mut incoming, 3).await?; // all that the prefetch lets come stays unacknowledged
    let restarted = tokio::process::Command::new(std::env::var("INTEROP_RESTART")?).status().await?;
    assert!(restarted.success(), "the broker was not restarted");

    let published = async {
        while let Err(error) = publish(&channel, "jobs", "job", "10", BasicProperties::default()).await {
            channel.wait_for_recovery(error).await?;
        }
        Ok::<(), lapin::Error>(())
    };
    tokio::time::timeout(PATIENCE, published).await??;

    // The consumer goes on by itself.
    let mut bodies = Vec::new();
    while bodies.last().is_none_or(|last| last != "10") {
        let delivery = next(&mut incoming).await?;
        bodies.push(body(&delivery));
        delivery.ack(BasicAckOptions::default()).await?;
    }
    // Acknowledgements have no answer: 0 to 2 may come again before the rest.
    let survivors = bodies.split_off(bodies.len().saturating_sub(8));
    assert_eq!(survivors, numbers(3..11), "bodies");
    assert_eq!(bodies, numbers(3 - bodies.len().min(3)..3), "what comes again");
    connection.close(200, "".into()).await?;
    Ok(())
}
