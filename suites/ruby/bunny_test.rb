# Bunny, the AMQP client of Ruby, as Debian has it. Prints what it finds as TAP.

require "bunny"
require "securerandom"
require "timeout"

$stdout.sync = true
WAIT_SECONDS = 20
ADDRESS = "amqp://guest:guest@#{ENV.fetch("SUITE_AMQP")}"
QUIET = { log_level: Logger::FATAL, network_recovery_interval: 0.2, recovery_attempts: 50 }.freeze

CHECKS = []

# A check with a connection and a channel.
def check(name, &work)
  CHECKS << [name, work]
end

def connect(**options)
  Bunny.new(ADDRESS, **QUIET, **options).tap(&:start)
end

def fresh(words)
  "#{words}-#{SecureRandom.hex(4)}"
end

def until_true(what)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + WAIT_SECONDS
  loop do
    found = yield
    return found if found
    raise "not in time: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    sleep 0.02
  end
end

def same(expected, found)
  raise "expected #{expected.inspect}, found #{found.inspect}" unless expected == found
end

def refused(error)
  yield
rescue error => refusal
  refusal
else
  raise "was to be refused with #{error}"
end

check "everything that was confirmed is consumed once and in order" do |channel|
  channel.confirm_select
  channel.prefetch(20)
  queue = channel.queue(fresh("orders"), durable: true)
  500.times { |number| channel.default_exchange.publish(number.to_s, routing_key: queue.name, persistent: true) }
  same true, channel.wait_for_confirms
  seen = []
  queue.subscribe(manual_ack: true) do |delivery, _, body|
    seen << body
    channel.ack(delivery.delivery_tag)
  end
  until_true("500 messages") { seen.length >= 500 }
  same (0...500).map(&:to_s), seen
end

check "properties and headers come back with their types" do |channel|
  queue = channel.queue("", exclusive: true)
  headers = {
    "text" => "words", "whole" => 42, "large" => 1 << 40, "less" => -7, "part" => 0.5, "yes" => true, "no" => false,
    "nothing" => nil, "when" => Time.at(1_700_000_000), "list" => [1, "two", [3.0]], "table" => { "a" => { "b" => "c" } }
  }
  queue.publish("body", content_type: "text/plain", content_encoding: "utf-8", headers: headers, priority: 5,
    correlation_id: "c", reply_to: "r", message_id: "m", timestamp: 1_700_000_001, type: "t", app_id: "a", user_id: "guest")
  _, properties, body = queue.pop
  same "body", body
  same headers, properties.headers
  same ["text/plain", "utf-8", 5, "c", "r", "m", "t", "a", "guest"], %i[content_type content_encoding priority correlation_id
    reply_to message_id type app_id user_id].map { |name| properties[name] }
  same 1_700_000_001, properties.timestamp.to_i
end

check "large and empty bodies" do |channel|
  queue = channel.queue("", exclusive: true)
  large = SecureRandom.bytes(5 << 20)
  queue.publish(large)
  queue.publish("")
  same large, queue.pop[2]
  same "", queue.pop[2]
  same [nil, nil, nil], queue.pop
end

check "what cannot be routed and is mandatory comes back" do |channel|
  exchange = channel.direct(fresh("nowhere"), auto_delete: true)
  returned = []
  exchange.on_return { |info, _, body| returned << [info.reply_code, info.reply_text, body] }
  exchange.publish("lost", routing_key: "none", mandatory: true)
  until_true("the message is back") { returned.any? }
  same [[312, "NO_ROUTE", "lost"]], returned
end

check "given back it comes again, marked" do |channel|
  queue = channel.queue("", exclusive: true)
  queue.publish("again")
  first, = queue.pop(manual_ack: true)
  same false, first.redelivered?
  channel.nack(first.delivery_tag, false, true)
  second, = queue.pop(manual_ack: true)
  same true, second.redelivered?
  channel.reject(second.delivery_tag, false)
  same [nil, nil, nil], queue.pop
end

check "dead letters tell what they died of" do |channel|
  dead = channel.queue("", exclusive: true)
  queue = channel.queue(fresh("dying"), durable: true, arguments: {
    "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => dead.name, "x-message-ttl" => 600_000
  })
  queue.publish("rejected", persistent: true)
  delivery, = queue.pop(manual_ack: true)
  channel.reject(delivery.delivery_tag, false)
  _, properties, body = until_true("it is dead") { found = dead.pop; found[2] && found }
  same "rejected", body
  death = properties.headers["x-death"].first
  same ["rejected", queue.name, 1, ["#{queue.name}"]], death.values_at("reason", "queue", "count", "routing-keys")
  same ["rejected", queue.name, ""], properties.headers.values_at("x-first-death-reason", "x-first-death-queue", "x-first-death-exchange")
  queue.publish("expired", expiration: "50")
  _, properties, = until_true("it has expired") { found = dead.pop; found[2] && found }
  same "expired", properties.headers["x-death"].first["reason"]
  queue.delete
end

check "topics, headers and exchanges behind exchanges" do |channel|
  topic = channel.topic(fresh("topic"), auto_delete: true)
  headers = channel.headers(fresh("headers"), auto_delete: true)
  fanout = channel.fanout(fresh("all"), auto_delete: true)
  fanout.bind(topic, routing_key: "logs.#")
  some, any, all = Array.new(3) { channel.queue("", exclusive: true) }
  some.bind(topic, routing_key: "logs.*.error")
  any.bind(headers, arguments: { "x-match" => "any", "a" => 1, "b" => "two" })
  all.bind(fanout)
  topic.publish("one", routing_key: "logs.shop.error")
  topic.publish("two", routing_key: "logs.shop.deep.error")
  headers.publish("three", headers: { "b" => "two" })
  headers.publish("four", headers: { "a" => 2 })
  drain = ->(queue) { found = []; while (body = queue.pop[2]) do found << body end; found }
  same [["one"], ["three"], %w[one two]], [some, any, all].map(&drain)
end

check "errors close the channel by their code, and the connection stays" do |_, connection|
  name = fresh("declared")
  connection.create_channel.queue(name, durable: true)
  refused(Bunny::NotFound) { connection.create_channel.queue(fresh("missing"), passive: true) }
  refused(Bunny::PreconditionFailed) { connection.create_channel.queue(name, durable: false) }
  refused(Bunny::AccessRefused) { connection.create_channel.queue("amq.mine") }
  other = connect
  exclusive = other.create_channel.queue("", exclusive: true)
  refused(Bunny::ResourceLocked) { connection.create_channel.queue(exclusive.name, passive: true) }
  other.close
  same false, connection.queue_exists?(exclusive.name)
  same true, connection.open?
  connection.create_channel.queue_delete(name)
end

check "what a transaction holds goes out when it is committed" do |channel, connection|
  queue = channel.queue(fresh("tx"))
  writer = connection.create_channel
  writer.tx_select
  writer.default_exchange.publish("kept", routing_key: queue.name)
  same 0, queue.message_count
  writer.tx_commit
  writer.default_exchange.publish("dropped", routing_key: queue.name)
  writer.tx_rollback
  same ["kept", nil], [queue.pop[2], queue.pop[2]]
  queue.delete
end

check "a consumer is told that its queue is gone" do |channel, connection|
  queue = channel.queue(fresh("going"))
  told = []
  consumer = Bunny::Consumer.new(channel, queue, "mine", true)
  consumer.on_cancellation { |cancel| told << cancel.consumer_tag }
  queue.subscribe_with(consumer)
  connection.create_channel.queue_delete(queue.name)
  until_true("it is told") { told.any? }
  same ["mine"], told
end

check "no more than the prefetch count is with a consumer, and urgent ones come first" do |channel|
  channel.prefetch(3)
  queue = channel.queue(fresh("urgent"), durable: true, arguments: { "x-max-priority" => 5 })
  10.times { |number| queue.publish(number.to_s, priority: number % 2 * 5) }
  got = []
  queue.subscribe(manual_ack: true) { |delivery, _, body| got << [delivery.delivery_tag, body] }
  until_true("three came") { got.length >= 3 }
  sleep 0.2
  same %w[1 3 5], got.map(&:last)
  channel.ack(got[2][0], true)
  until_true("three more came") { got.length >= 6 }
  same %w[1 3 5 7 9 0], got.map(&:last)
  queue.delete
end

check "a quorum queue counts deliveries and lets go at its limit" do |channel, connection|
  dead = channel.queue("", exclusive: true)
  queue = channel.queue(fresh("quorum"), durable: true, arguments: {
    "x-queue-type" => "quorum", "x-delivery-limit" => 2, "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => dead.name
  })
  channel.confirm_select
  queue.publish("poison", persistent: true)
  same true, channel.wait_for_confirms
  counts = []
  3.times do
    reader = connection.create_channel
    delivery, properties, = until_true("it comes") { found = reader.basic_get(queue.name, manual_ack: true); found[2] && found }
    counts << properties[:headers].to_h["x-delivery-count"].to_i
    reader.reject(delivery.delivery_tag, true)
    reader.close
  end
  same [0, 1, 2], counts
  _, properties, = until_true("it is dead") { found = dead.pop; found[2] && found }
  same "delivery_limit", properties.headers["x-death"].first["reason"]
  queue.delete
end

check "a message waits for its time in an exchange that delays" do |channel|
  exchange = channel.exchange(fresh("later"), type: "x-delayed-message", durable: true, arguments: { "x-delayed-type" => "direct" })
  queue = channel.queue("", exclusive: true).bind(exchange, routing_key: "k")
  channel.confirm_select
  exchange.publish("second", routing_key: "k", headers: { "x-delay" => 600 })
  exchange.publish("first", routing_key: "k", headers: { "x-delay" => 150 })
  same true, channel.wait_for_confirms
  same nil, queue.pop[2]
  got = []
  until_true("both came") { body = queue.pop[2]; got << body if body; got.length == 2 }
  same %w[first second], got
  exchange.delete
end

check "replies come without a queue" do |channel, connection|
  server = connection.create_channel
  asked = server.queue("", exclusive: true)
  asked.subscribe { |_, properties, body| server.default_exchange.publish(body.upcase, routing_key: properties.reply_to, correlation_id: properties.correlation_id) }
  replies = []
  channel.basic_consume("amq.rabbitmq.reply-to", "", true) { |_, properties, body| replies << [properties.correlation_id, body] }
  channel.default_exchange.publish("hello", routing_key: asked.name, reply_to: "amq.rabbitmq.reply-to", correlation_id: "7")
  until_true("it is answered") { replies.any? }
  same [["7", "HELLO"]], replies
end

# The last one: the broker is killed under everybody.
check "what was confirmed is there after kill -9, and a consumer goes on by itself" do |channel, connection|
  channel.confirm_select
  queue = channel.queue(fresh("kept"), durable: true)
  100.times { |number| queue.publish(number.to_s, persistent: true) }
  same true, channel.wait_for_confirms
  consuming = connect(automatically_recover: true)
  reader = consuming.create_channel
  got = []
  reader.queue(queue.name, durable: true).subscribe(manual_ack: true) do |delivery, _, body|
    got << body
    reader.ack(delivery.delivery_tag)
  end
  until_true("all came") { got.uniq.length >= 100 }
  # A connection that does not recover would raise in the middle of this.
  connection.close
  system(ENV.fetch("SUITE_CRASH"), exception: true)
  publishing = until_true("somebody can connect again") { connect rescue nil }
  again = publishing.create_channel
  again.confirm_select
  again.default_exchange.publish("after", routing_key: queue.name, persistent: true)
  same true, again.wait_for_confirms
  until_true("the consumer has come back") { got.include?("after") }
  same (0...100).map(&:to_s) + ["after"], got.uniq
  again.queue_delete(queue.name)
  publishing.close
  consuming.close
end

passed = failed = 0
CHECKS.each_with_index do |(name, work), index|
  connection = nil
  begin
    Timeout.timeout(3 * WAIT_SECONDS) do
      connection = connect(automatically_recover: false)
      work.call(connection.create_channel, connection)
    end
    passed += 1
    puts "ok #{index + 1} - #{name}"
  rescue Exception => error # rubocop:disable Lint/RescueException
    failed += 1
    puts "not ok #{index + 1} - #{name}", "  #{error.class}: #{error.message}", *error.backtrace.first(6).map { |line| "    #{line}" }
  ensure
    Timeout.timeout(WAIT_SECONDS) { connection&.close if connection&.open? } rescue nil
  end
end
puts "1..#{CHECKS.length}", "# pass #{passed}", "# fail #{failed}"
exit!(failed.zero? ? 0 : 1)
