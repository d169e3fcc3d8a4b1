// Package suites checks the three Go clients in wide use against a broker: franz-go, sarama, kafka-go.
package suites

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const waitFor = 60 * time.Second

func bootstrap() string { return os.Getenv("SUITE_BOOTSTRAP") }

// fresh gives a name that no other check and no earlier run has used.
func fresh(t *testing.T, words string) string {
	t.Helper()
	var salt [4]byte
	if _, err := rand.Read(salt[:]); err != nil {
		t.Fatal(err)
	}
	return words + "-" + hex.EncodeToString(salt[:])
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitFor)
	t.Cleanup(cancel)
	return ctx
}

func create(t *testing.T, topic string, partitions int32) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answers, err := kadm.NewClient(client).CreateTopics(limited(t), partitions, 1, nil, topic)
	if err != nil {
		t.Fatal(err)
	}
	if err := answers.Error(); err != nil {
		t.Fatal(err)
	}
}

// assertEachOnce fails unless values are exactly the numbers from 0 to count.
func assertEachOnce(t *testing.T, values []int, count int) {
	t.Helper()
	slices.Sort(values)
	if len(values) != count {
		t.Fatalf("%d records came instead of %d", len(values), count)
	}
	for number, value := range values {
		if number != value {
			t.Fatalf("record %d is missing or came twice", number)
		}
	}
}

func TestFranzGoEveryPartWithEachCompression(t *testing.T) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			ctx := limited(t)
			topic := fresh(t, "franz-"+name)
			create(t, topic, 1)
			client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap()), kgo.ProducerBatchCompression(codec),
				kgo.ConsumeTopics(topic))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			var sent []*kgo.Record
			for number := range 300 {
				record := &kgo.Record{
					Topic: topic, Key: fmt.Appendf(nil, "key %d", number), Value: fmt.Appendf(nil, "value %d", number),
					Headers:   []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, number)}, {Key: "n", Value: nil}},
					Timestamp: time.UnixMilli(1_600_000_000_000 + int64(number)),
				}
				if number%7 == 0 {
					record.Value = nil
				}
				sent = append(sent, record)
			}
			if err := client.ProduceSync(ctx, sent...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			number := 0
			for number < len(sent) {
				fetches := client.PollFetches(ctx)
				if err := fetches.Err(); err != nil {
					t.Fatal(err)
				}
				fetches.EachRecord(func(came *kgo.Record) {
					want := sent[number]
					if came.Offset != int64(number) || string(came.Key) != string(want.Key) ||
						(came.Value == nil) != (want.Value == nil) || string(came.Value) != string(want.Value) ||
						!came.Timestamp.Equal(want.Timestamp) || len(came.Headers) != 2 ||
						string(came.Headers[0].Value) != string(want.Headers[0].Value) || came.Headers[1].Value != nil {
						t.Fatalf("record %d came as %+v", number, came)
					}
					number++
				})
			}
		})
	}
}

func TestFranzGoGroupSharesAndGoesOn(t *testing.T) {
	ctx := limited(t)
	topic := fresh(t, "franz-group")
	create(t, topic, 4)
	var lock sync.Mutex
	owned := make([]map[int32]bool, 2)
	values := make([][]int, 2)
	members := make([]*kgo.Client, 2)
	note := func(index int, has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			lock.Lock()
			defer lock.Unlock()
			for _, partition := range changed[topic] {
				if has {
					owned[index][partition] = true
				} else {
					delete(owned[index], partition)
				}
			}
		}
	}
	for index := range members {
		owned[index] = map[int32]bool{}
		client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap()), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
			kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.DisableAutoCommit(),
			kgo.OnPartitionsAssigned(note(index, true)), kgo.OnPartitionsRevoked(note(index, false)),
			kgo.OnPartitionsLost(note(index, false)))
		if err != nil {
			t.Fatal(err)
		}
		members[index] = client
	}
	polling, halt := context.WithCancel(ctx)
	var done sync.WaitGroup
	for index, client := range members {
		done.Go(func() {
			defer client.Close()
			for polling.Err() == nil {
				fetches := client.PollFetches(polling)
				fetches.EachRecord(func(came *kgo.Record) {
					number, _ := strconv.Atoi(string(came.Value))
					lock.Lock()
					values[index] = append(values[index], number)
					lock.Unlock()
				})
				if fetches.NumRecords() > 0 {
					if err := client.CommitUncommittedOffsets(ctx); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	until(t, "both have their half", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(owned[0]) == 2 && len(owned[1]) == 2
	})
	producer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	var records []*kgo.Record
	for number := range 400 {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(number % 4), Value: fmt.Append(nil, number)})
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	until(t, "all is read", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(values[0])+len(values[1]) >= 400
	})
	halt()
	done.Wait()
	assertEachOnce(t, append(values[0], values[1]...), 400)

	if err := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 2, Value: []byte("late")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	again, err := kgo.NewClient(kgo.SeedBrokers(bootstrap()), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	fetches := again.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	for _, came := range fetches.Records() {
		if string(came.Value) != "late" {
			t.Fatalf("a committed record came again: %s", came.Value)
		}
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(waitFor)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// collector is sarama's handler of a group session: it counts and marks what it reads.
type collector struct {
	lock   sync.Mutex
	values []int
}

func (*collector) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*collector) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (c *collector) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			number, _ := strconv.Atoi(string(message.Value))
			c.lock.Lock()
			c.values = append(c.values, number)
			c.lock.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c *collector) count() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return len(c.values)
}

func TestSaramaProducesAndReadsInAGroup(t *testing.T) {
	topic := fresh(t, "sarama")
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	admin, err := sarama.NewClusterAdmin([]string{bootstrap()}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1}, false); err != nil {
		t.Fatal(err)
	}
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	for index, codec := range codecs {
		config.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer([]string{bootstrap()}, config)
		if err != nil {
			t.Fatal(err)
		}
		var messages []*sarama.ProducerMessage
		for number := range 80 {
			value := index*80 + number
			messages = append(messages, &sarama.ProducerMessage{
				Topic: topic, Partition: int32(value % 4), Value: sarama.StringEncoder(strconv.Itoa(value)),
			})
		}
		if err := producer.SendMessages(messages); err != nil {
			t.Fatal(err)
		}
		if err := producer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	read := &collector{}
	ctx, halt := context.WithCancel(limited(t))
	var done sync.WaitGroup
	for range 2 {
		group, err := sarama.NewConsumerGroup([]string{bootstrap()}, topic, config)
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			defer group.Close()
			for ctx.Err() == nil {
				if err := group.Consume(ctx, []string{topic}, read); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	until(t, "all is read", func() bool { return read.count() >= 400 })
	halt()
	done.Wait()
	assertEachOnce(t, read.values, 400)
}

func TestKafkaGoProducesAndReadsInAGroup(t *testing.T) {
	ctx := limited(t)
	topic := fresh(t, "kafka-go")
	create(t, topic, 4)
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for index, codec := range codecs {
		writer := &kafka.Writer{
			Addr: kafka.TCP(bootstrap()), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec,
			BatchTimeout: 10 * time.Millisecond, Balancer: &kafka.RoundRobin{},
		}
		var messages []kafka.Message
		for number := range 80 {
			messages = append(messages, kafka.Message{Value: []byte(strconv.Itoa(index*80 + number))})
		}
		if err := writer.WriteMessages(ctx, messages...); err != nil {
			t.Fatal(err)
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap()}, GroupID: topic, Topic: topic, MaxWait: 200 * time.Millisecond,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond, StartOffset: kafka.FirstOffset,
	})
	var values []int
	for len(values) < 400 {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		number, _ := strconv.Atoi(string(message.Value))
		values = append(values, number)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	assertEachOnce(t, values, 400)
}
