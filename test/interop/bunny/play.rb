# The common stories with bunny. It connects again by itself.

require "bunny"

PATIENCE = 20 # seconds for whatever must come about

def check(what, got, want)
  raise "#{what} is #{got.inspect}, want #{want.inspect}" unless got == want
end

# Waits for a condition.
def wait_until(what)
  deadline = Time.now + PATIENCE
  until yield
    raise "it did not come about that #{what}" if Time.now > deadline
    sleep 0.02
  end
end

def connect(**options)
  Bunny.new(ENV.fetch("AMQP_URI"), **options).start
end

def ready(channel, queue)
  channel.queue(queue, passive: true).message_count
end

# A consumer's deliveries: [delivery_info, properties, body] each.
class Inbox
  attr_reader :deliveries

  def initialize(queue)
    @deliveries = []
    queue.subscribe(manual_ack: true) { |*delivery| @deliveries << delivery }
  end

  # Waits until n have come in all.
  def reach(n)
    wait_until("#{n} messages are delivered") { @deliveries.size >= n }
    @deliveries
  end
end

def count_of(headers, queue, reason)
  death = (headers || {}).fetch("x-death", []).find { |d| d["queue"] == queue && d["reason"] == reason }
  death ? death["count"] : 0
end

# Checks what headers say of a message from exchange jobs, rejected in work.
def check_rejected(headers)
  check("number of deaths", headers["x-death"].size, 1)
  death = headers["x-death"][0]
  check("x-death", death.reject { |key, _| key == "time" },
        "count" => 1, "reason" => "rejected", "queue" => "work", "exchange" => "jobs", "routing-keys" => ["job"])
  age = Time.now - death["time"]
  raise "x-death time is #{age} s ago" unless age.between?(-5, 60)
  %w[first last].each do |which|
    {"reason" => "rejected", "queue" => "work", "exchange" => "jobs"}.each do |key, want|
      check("x-#{which}-death-#{key}", headers["x-#{which}-death-#{key}"], want)
    end
  end
end

def confirms
  connection = connect
  channel = connection.create_channel
  channel.confirm_select
  channel.queue("orders", durable: true)
  exchange = channel.default_exchange
  returned = []
  exchange.on_return { |info, _, body| returned << [info.reply_code, body] }
  50.times { |i| exchange.publish(i.to_s, routing_key: "orders", persistent: true, mandatory: true) }
  check("all are confirmed", channel.wait_for_confirms, true)
  check("messages that came back", returned, [])
  exchange.publish("lost", routing_key: "nowhere", persistent: true, mandatory: true)
  check("the one without a route is confirmed", channel.wait_for_confirms, true)
  wait_until("it came back") { returned.any? }
  check("what came back", returned, [[312, "lost"]])
  check("messages", ready(channel, "orders"), 50)
  connection.close
end

def consume
  connection = connect
  watching = connection.create_channel
  watching.confirm_select
  watching.queue("orders", durable: true)
  20.times { |i| watching.default_exchange.publish(i.to_s, routing_key: "orders", persistent: true) }
  watching.wait_for_confirms

  channel = connection.create_channel
  channel.prefetch(5)
  inbox = Inbox.new(channel.queue("orders", durable: true))
  first = inbox.reach(5).first(3)
  check("ready messages beyond the prefetch", ready(watching, "orders"), 15)
  first.each { |info, _, _| channel.ack(info.delivery_tag) }
  inbox.reach(8)
  check("ready messages after three acknowledgements", ready(watching, "orders"), 12)
  channel.close

  channel = connection.create_channel
  deliveries = Inbox.new(channel.queue("orders", durable: true)).reach(17)
  check("bodies", deliveries.map { |_, _, body| body }, (3..19).map(&:to_s))
  check("redelivered", deliveries.map { |info, _, _| info.redelivered? }, [true] * 5 + [false] * 12)
  channel.ack(deliveries.last[0].delivery_tag, true)
  channel.close
  check("messages left", ready(watching, "orders"), 0)
  connection.close
end

def reject
  connection = connect
  channel = connection.create_channel
  channel.confirm_select
  jobs = channel.direct("jobs", durable: true)
  dlx = channel.direct("dlx", durable: true)
  work = channel.queue("work", durable: true, arguments: {"x-dead-letter-exchange" => "dlx", "x-dead-letter-routing-key" => "dead"})
  work.bind(jobs, routing_key: "job")
  dead = channel.queue("dead", durable: true).bind(dlx, routing_key: "dead")
  jobs.publish("broken", routing_key: "job", persistent: true, message_id: "m-1", headers: {"trace" => "t-1"})

  info, = Inbox.new(work).reach(1)[0]
  channel.reject(info.delivery_tag, false)
  info, properties, body = Inbox.new(dead).reach(1)[0]
  check("body", body, "broken")
  check("message id", properties.message_id, "m-1")
  check("header trace", properties.headers["trace"], "t-1")
  check("exchange and key", [info.exchange, info.routing_key], %w[dlx dead])
  check_rejected(properties.headers)
  channel.ack(info.delivery_tag)
  connection.close
end

def retry_loop
  connection = connect
  channel = connection.create_channel
  channel.confirm_select
  work = channel.queue("work", durable: true, arguments: {"x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "wait"})
  channel.queue("wait", durable: true,
                arguments: {"x-message-ttl" => 200, "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "work"})
  parked = channel.queue("parked", durable: true)
  channel.default_exchange.publish("again", routing_key: "work", persistent: true)
  seen = []
  work.subscribe(manual_ack: true) do |info, properties, body|
    rejected = count_of(properties.headers, "work", "rejected")
    expired = count_of(properties.headers, "wait", "expired")
    if rejected < 3
      channel.nack(info.delivery_tag, false, false)
    else
      channel.default_exchange.publish(body, routing_key: "parked", persistent: true)
      channel.ack(info.delivery_tag)
    end
    seen << [rejected, expired]
  end
  wait_until("the message is parked") { seen.size == 4 }
  channel.wait_for_confirms
  check("counts of rejected and expired", seen, [[0, 0], [1, 1], [2, 2], [3, 3]])
  check("parked", parked.pop[2], "again")
  check("left", [ready(channel, "work"), ready(channel, "wait")], [0, 0])
  connection.close
end

def reconnect
  connection = connect(network_recovery_interval: 0.2, logger: Logger.new(File::NULL))
  channel = connection.create_channel
  channel.confirm_select
  channel.prefetch(3)
  jobs = channel.direct("jobs", durable: true)
  work = channel.queue("work", durable: true).bind(jobs, routing_key: "job")
  10.times { |i| jobs.publish(i.to_s, routing_key: "job", persistent: true) }
  channel.wait_for_confirms
  inbox = Inbox.new(work)
  inbox.reach(3).first(3).each { |info, _, _| channel.ack(info.delivery_tag) }
  inbox.reach(6) # all that the prefetch lets come stays unacknowledged
  recovered = false
  connection.after_recovery_completed { recovered = true }
  raise "the broker was not restarted" unless system(ENV.fetch("INTEROP_RESTART"))

  wait_until("it is connected again") { recovered }
  jobs.publish("10", routing_key: "job", persistent: true, mandatory: true)
  check("it is confirmed", channel.wait_for_confirms, true)
  bodies = []
  until bodies.last == "10" # the consumer is there again too
    info, _, body = inbox.reach(7 + bodies.size)[6 + bodies.size]
    bodies << body
    channel.ack(info.delivery_tag)
  end
  # Acknowledgements have no answer: 0 to 2 may come again before the rest.
  check("bodies", bodies.last(8), (3..10).map(&:to_s))
  again = bodies[0...-8]
  check("what comes again", again, %w[0 1 2].last(again.size))
  connection.close
end

stories = {"confirms" => :confirms, "consume" => :consume, "reject" => :reject, "retry" => :retry_loop, "reconnect" => :reconnect}
Thread.report_on_exception = true
send(stories.fetch(ARGV[0]))
