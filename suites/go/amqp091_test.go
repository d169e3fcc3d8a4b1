// amqp091-go, RabbitMQ's own client for Go.

package suites

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func amqpDial(t *testing.T) *amqp.Connection {
	t.Helper()
	connection, err := amqp.Dial("amqp://guest:guest@" + os.Getenv("SUITE_AMQP") + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

func amqpChannel(t *testing.T, connection *amqp.Connection) *amqp.Channel {
	t.Helper()
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return channel
}

// amqpQueue declares a queue that goes with its connection.
func amqpQueue(t *testing.T, channel *amqp.Channel, arguments amqp.Table) string {
	t.Helper()
	queue, err := channel.QueueDeclare("", false, false, true, false, arguments)
	if err != nil {
		t.Fatal(err)
	}
	return queue.Name
}

func amqpPublish(t *testing.T, channel *amqp.Channel, exchange, key string, message amqp.Publishing) {
	t.Helper()
	if err := channel.PublishWithContext(limited(t), exchange, key, false, false, message); err != nil {
		t.Fatal(err)
	}
}

func amqpNext(t *testing.T, deliveries <-chan amqp.Delivery) amqp.Delivery {
	t.Helper()
	select {
	case delivery, open := <-deliveries:
		if !open {
			t.Fatal("the consumer ended")
		}
		return delivery
	case <-time.After(waitFor):
		t.Fatal("no delivery in time")
	}
	panic("unreachable")
}

func TestAMQPConfirmsComeForEveryMessage(t *testing.T) {
	channel := amqpChannel(t, amqpDial(t))
	if err := channel.Confirm(false); err != nil {
		t.Fatal(err)
	}
	queue := amqpQueue(t, channel, nil)
	var waiting []*amqp.DeferredConfirmation
	for number := range 500 {
		confirmation, err := channel.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: fmt.Append(nil, number)})
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, confirmation)
	}
	for _, confirmation := range waiting {
		if acked, err := confirmation.WaitContext(limited(t)); err != nil || !acked {
			t.Fatal(acked, err)
		}
	}
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for number := range 500 {
		delivery := amqpNext(t, deliveries)
		if string(delivery.Body) != fmt.Sprint(number) {
			t.Fatalf("%s came instead of %d", delivery.Body, number)
		}
		if number%100 == 99 {
			delivery.Ack(true)
		}
	}
}

func TestAMQPPropertiesAndTables(t *testing.T) {
	channel := amqpChannel(t, amqpDial(t))
	queue := amqpQueue(t, channel, nil)
	sent := amqp.Publishing{
		Headers: amqp.Table{
			"bool": true, "i8": int8(-1), "u8": uint8(1), "i16": int16(-2), "u16": uint16(2), "i32": int32(-3), "u32": uint32(3), "i64": int64(-4),
			"f32": float32(1.5), "f64": 2.5, "text": "grün", "bytes": []byte{0, 1}, "time": time.Unix(1_700_000_000, 0),
			"decimal": amqp.Decimal{Scale: 2, Value: 314}, "list": []any{int32(1), "two"}, "table": amqp.Table{"in": true}, "none": nil,
		},
		ContentType: "text/plain", ContentEncoding: "utf-8", DeliveryMode: amqp.Persistent, Priority: 3, CorrelationId: "c", ReplyTo: "r",
		Expiration: "60000", MessageId: "m", Timestamp: time.Unix(1_700_000_000, 0), Type: "t", UserId: "guest", AppId: "a", Body: []byte("body"),
	}
	amqpPublish(t, channel, "", queue, sent)
	got, there, err := channel.Get(queue, true)
	if err != nil || !there {
		t.Fatal(there, err)
	}
	for name, value := range sent.Headers {
		if fmt.Sprintf("%T %v", value, value) != fmt.Sprintf("%T %v", got.Headers[name], got.Headers[name]) {
			t.Errorf("%s: %T %v came back as %T %v", name, value, value, got.Headers[name], got.Headers[name])
		}
	}
	if got.Expiration != "60000" || !got.Timestamp.Equal(sent.Timestamp) || got.AppId != "a" || got.Priority != 3 || got.MessageId != "m" {
		t.Errorf("%+v", got)
	}
}

func TestAMQPReturnsNacksAndDeadLetters(t *testing.T) {
	channel := amqpChannel(t, amqpDial(t))
	returns := channel.NotifyReturn(make(chan amqp.Return, 1))
	err := channel.PublishWithContext(limited(t), "amq.topic", fresh(t, "nowhere"), true, false, amqp.Publishing{Body: []byte("m")})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case returned := <-returns:
		if returned.ReplyCode != amqp.NoRoute || string(returned.Body) != "m" {
			t.Fatalf("%+v", returned)
		}
	case <-time.After(waitFor):
		t.Fatal("nothing came back")
	}
	dead := amqpQueue(t, channel, nil)
	work := amqpQueue(t, channel, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, "x-message-ttl": int32(60_000)})
	deaths, err := channel.Consume(dead, "", true, true, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	amqpPublish(t, channel, "", work, amqp.Publishing{Body: []byte("m")})
	deliveries, err := channel.Consume(work, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	amqpNext(t, deliveries).Nack(false, true)
	again := amqpNext(t, deliveries)
	if !again.Redelivered {
		t.Fatal("it does not say that it was delivered before")
	}
	again.Nack(false, false)
	history := amqpNext(t, deaths).Headers["x-death"].([]any)[0].(amqp.Table)
	if history["reason"] != "rejected" || history["queue"] != work || history["count"] != int64(1) {
		t.Fatalf("%+v", history)
	}
}

func TestAMQPPrefetchIsKept(t *testing.T) {
	connection := amqpDial(t)
	for _, global := range []bool{false, true} {
		channel := amqpChannel(t, connection)
		if err := channel.Qos(3, 0, global); err != nil {
			t.Fatal(err)
		}
		queue := amqpQueue(t, channel, nil)
		deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			amqpPublish(t, channel, "", queue, amqp.Publishing{})
		}
		var last amqp.Delivery
		for range 3 {
			last = amqpNext(t, deliveries)
		}
		select {
		case <-deliveries:
			t.Fatalf("global %v: a fourth one came", global)
		case <-time.After(200 * time.Millisecond):
		}
		last.Ack(true)
		amqpNext(t, deliveries)
		amqpNext(t, deliveries)
	}
}

func TestAMQPErrorsHaveTheirCodes(t *testing.T) {
	connection := amqpDial(t)
	mine := amqpQueue(t, amqpChannel(t, connection), nil)
	stranger := amqpDial(t)
	for _, refused := range []struct {
		code int
		do   func(*amqp.Channel) error
	}{
		{404, func(c *amqp.Channel) error {
			_, err := c.QueueDeclarePassive(fresh(t, "none"), false, false, false, false, nil)
			return err
		}},
		{404, func(c *amqp.Channel) error { return c.QueueBind(mine, "", fresh(t, "none"), false, nil) }},
		{403, func(c *amqp.Channel) error {
			return c.ExchangeDeclare("amq.mine", "direct", false, false, false, false, nil)
		}},
		{405, func(c *amqp.Channel) error { _, err := c.QueuePurge(mine, false); return err }},
		{406, func(c *amqp.Channel) error {
			return c.ExchangeDeclare("amq.direct", "topic", true, false, false, false, nil)
		}},
	} {
		from := connection
		if refused.code == 405 {
			from = stranger
		}
		var reason *amqp.Error
		if err := refused.do(amqpChannel(t, from)); !errors.As(err, &reason) || reason.Code != refused.code {
			t.Errorf("%d was expected, and %v came", refused.code, err)
		}
	}
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	if _, err := amqpChannel(t, connection).Consume(mine, "twice", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := amqpChannel(t, connection).Qos(1, 1, false); err == nil {
		t.Fatal("a size of prefetch is not served")
	}
	if reason := <-closed; reason == nil || reason.Code != amqp.NotImplemented {
		t.Fatalf("%v", reason)
	}
}

func TestAMQPConsumersEndWithTheirQueue(t *testing.T) {
	connection := amqpDial(t)
	channel := amqpChannel(t, connection)
	cancelled := channel.NotifyCancel(make(chan string, 1))
	queue := amqpQueue(t, channel, nil)
	deliveries, err := channel.Consume(queue, "tag", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := amqpChannel(t, connection).QueueDelete(queue, false, false, false); err != nil {
		t.Fatal(err)
	}
	select {
	case tag := <-cancelled:
		if tag != "tag" {
			t.Fatal(tag)
		}
	case <-time.After(waitFor):
		t.Fatal("the consumer was not told")
	}
	if _, open := <-deliveries; open {
		t.Fatal("a delivery of a queue that is gone")
	}
}

func TestAMQPTransactionsAndLargeMessages(t *testing.T) {
	channel := amqpChannel(t, amqpDial(t))
	queue := amqpQueue(t, channel, nil)
	if err := channel.Tx(); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 6<<20)
	rand.Read(large)
	amqpPublish(t, channel, "", queue, amqp.Publishing{Body: []byte("forgotten")})
	if err := channel.TxRollback(); err != nil {
		t.Fatal(err)
	}
	amqpPublish(t, channel, "", queue, amqp.Publishing{Body: large})
	if err := channel.TxCommit(); err != nil {
		t.Fatal(err)
	}
	got, there, err := channel.Get(queue, true)
	if err != nil || !there || !bytes.Equal(got.Body, large) {
		t.Fatal(there, err, len(got.Body))
	}
}

func TestAMQPConfirmedMessagesOutliveACrash(t *testing.T) {
	crash := os.Getenv("SUITE_CRASH")
	if crash == "" {
		t.Skip("nobody may kill this broker")
	}
	connection := amqpDial(t)
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	channel := amqpChannel(t, connection)
	channel.Confirm(false)
	queue := fresh(t, "durable")
	if _, err := channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	for number := range 100 {
		confirmation, err := channel.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{Body: fmt.Append(nil, number)})
		if err != nil {
			t.Fatal(err)
		}
		if number == 99 {
			confirmation.Wait()
		}
	}
	if output, err := exec.Command("sh", "-c", crash).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	<-closed
	channel = amqpChannel(t, amqpDial(t))
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for number := range 100 {
		delivery := amqpNext(t, deliveries)
		if string(delivery.Body) != fmt.Sprint(number) {
			t.Fatalf("%s came instead of %d", delivery.Body, number)
		}
		delivery.Ack(false)
	}
	if _, err := channel.QueueDelete(queue, false, false, false); err != nil {
		t.Fatal(err)
	}
}
