package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// What a message stands on when JetStream has acknowledged it: sync_always syncs each
// write, the default syncs every two minutes.
const (
	natsCachedOne    = "page cache of the one server"
	natsSyncedOne    = "fsync on the one server"
	natsCachedQuorum = "page cache of 2 of 3 servers"
	natsSyncedQuorum = "sync_always on 2 of 3 servers"
	natsBuffered     = "memory of the one server"
)

// natsMode says when servers write and sync.
type natsMode int

const (
	unsynced natsMode = iota // written at once, synced every two minutes
	synced                   // sync_always
	buffered                 // persist_mode async: the stream is written after the ack
)

// natsRun measures on a stream that there is.
type natsRun func(ctx context.Context, e env, js jetstream.JetStream) (sample, error)

// withNATS runs what a row measures on fresh servers in this process, with a stream
// on files and a connection in the process to the server that leads it.
func withNATS(servers int, mode natsMode, run natsRun) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (sample, error) {
		var all []*server.Server
		shutdown := func() {
			for _, s := range all {
				s.Shutdown()
				s.WaitForShutdown()
			}
		}
		defer shutdown()
		var err error
		for try := range 3 { // somebody may take a port meanwhile
			shutdown()
			if all, err = openNATS(filepath.Join(e.dir, fmt.Sprint(try)), servers, mode == synced); err == nil {
				break
			}
		}
		if err != nil {
			return sample{}, err
		}
		nc, js, err := natsStream(ctx, all, mode)
		if err != nil {
			return sample{}, err
		}
		defer nc.Close()
		return run(ctx, e, js)
	}
}

func openNATS(dir string, servers int, syncAlways bool) ([]*server.Server, error) {
	ports, err := freePorts(servers)
	if err != nil {
		return nil, err
	}
	var routes []string
	for _, port := range ports {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	var all []*server.Server
	for i := range servers {
		name := fmt.Sprint("n", i)
		opts := &server.Options{
			ServerName: name, NoLog: true, NoSigs: true,
			Host: "127.0.0.1", Port: server.RANDOM_PORT, DontListen: servers == 1, // routes wait for the clients' listener
			JetStream: true, StoreDir: filepath.Join(dir, name), SyncAlways: syncAlways,
		}
		if servers > 1 {
			opts.Cluster = server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: ports[i]}
			opts.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}
		s, err := server.NewServer(opts)
		if err != nil {
			return all, err
		}
		all = append(all, s)
		s.Start()
	}
	for _, s := range all {
		if !s.ReadyForConnections(20 * time.Second) {
			return all, errors.New("a NATS server is not ready")
		}
	}
	return all, nil
}

// freePorts returns ports of this machine that nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // when all are chosen, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// natsStream makes the stream, trying until the servers have found each other, and
// connects to its leader.
func natsStream(ctx context.Context, all []*server.Server, mode natsMode) (*nats.Conn, jetstream.JetStream, error) {
	connect := func(s *server.Server) (*nats.Conn, jetstream.JetStream, error) {
		nc, err := nats.Connect("", nats.InProcessServer(s))
		if err != nil {
			return nil, nil, err
		}
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(10_000), jetstream.WithDefaultTimeout(20*time.Second))
		return nc, js, err
	}
	nc, js, err := connect(all[0])
	if err != nil {
		return nil, nil, err
	}
	cfg := jetstream.StreamConfig{
		Name: topic, Subjects: []string{topic}, Storage: jetstream.FileStorage, Replicas: len(all), AllowBatchPublish: true,
	}
	if mode == buffered {
		cfg.PersistMode = jetstream.AsyncPersistMode
	}
	var stream jetstream.Stream
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		stream, err = js.CreateOrUpdateStream(try, cfg)
		cancel()
		if err == nil {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			nc.Close()
			return nil, nil, errors.Join(err, ctx.Err())
		}
	}
	info, err := stream.Info(ctx)
	if err != nil || info.Cluster == nil || len(all) == 1 {
		return nc, js, err
	}
	for _, s := range all {
		if s.Name() == info.Cluster.Leader {
			nc.Close()
			return connect(s)
		}
	}
	return nc, js, nil
}

// natsSync publishes one message and waits, again and again.
func natsSync(ctx context.Context, e env, js jetstream.JetStream) (sample, error) {
	value := e.value()
	return calls(e.duration, 1, func() error {
		_, err := js.Publish(ctx, topic, value)
		return err
	})
}

// natsAsync publishes up to 10,000 messages ahead of their acks.
func natsAsync(ctx context.Context, e env, js jetstream.JetStream) (sample, error) {
	value := e.value()
	if _, err := js.Publish(ctx, topic, value); err != nil {
		return sample{}, err
	}
	var last jetstream.PubAckFuture
	s, err := stream(e.duration,
		func() (err error) {
			last, err = js.PublishAsync(topic, value, jetstream.WithStallWait(20*time.Second))
			return err
		},
		func() error {
			select {
			case <-js.PublishAsyncComplete():
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case <-last.Ok():
				return nil
			case err := <-last.Err():
				return err
			}
		})
	return s, errors.Join(err, natsHolds(ctx, js, s.records))
}

// natsFast publishes with flow control instead of an ack per message (ADR-50).
func natsFast(ctx context.Context, e env, js jetstream.JetStream) (sample, error) {
	var failed firstError
	p, err := jetstreamext.NewFastPublisher(js,
		jetstreamext.FastPublishFlowControl{Flow: 500, MaxOutstandingAcks: 3},
		jetstreamext.WithFastPublisherErrorHandler(failed.note))
	if err != nil {
		return sample{}, err
	}
	value := e.value()
	s, err := stream(e.duration,
		func() error { _, err := p.Add(topic, value); return err },
		func() error { _, err := p.Close(ctx); return err })
	return s, errors.Join(failed.get(), err, natsHolds(ctx, js, s.records))
}

// natsHolds fails when the stream has fewer messages than were acknowledged.
func natsHolds(ctx context.Context, js jetstream.JetStream, records int) error {
	stream, err := js.Stream(ctx, topic)
	if err != nil {
		return err
	}
	if info := stream.CachedInfo(); info.State.Msgs < uint64(records) {
		return fmt.Errorf("the stream has %d of %d messages", info.State.Msgs, records)
	}
	return nil
}

// natsRead publishes for e.duration, then reads all of it with an ordered consumer.
func natsRead(ctx context.Context, e env, js jetstream.JetStream) (sample, error) {
	filled, err := natsFast(ctx, e, js)
	if err != nil {
		return sample{}, err
	}
	c, err := js.OrderedConsumer(ctx, topic, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return sample{}, err
	}
	began, got, wrong, done := time.Now(), 0, 0, make(chan struct{})
	reading, err := c.Consume(func(m jetstream.Msg) {
		if len(m.Data()) != e.size {
			wrong++
		}
		if got++; got == filled.records {
			close(done)
		}
	}, jetstream.PullMaxMessages(5000))
	if err != nil {
		return sample{}, err
	}
	defer reading.Stop()
	select {
	case <-done:
	case <-ctx.Done():
		return sample{}, ctx.Err()
	}
	s := sample{records: filled.records, took: time.Since(began)}
	if wrong > 0 {
		return s, fmt.Errorf("%d messages are not of %d bytes", wrong, e.size)
	}
	return s, nil
}
