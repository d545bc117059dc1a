package mongolog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
)

// Log is the [semantic.IdempotencyLog] in one MongoDB collection. It works between
// Start and Close. Safe for concurrent use.
type Log struct {
	config  Config // settled
	signals *observability.Signals
	// The measures of the two verbs.
	tryAcquire, finalize *observability.Operation
	health               *health.Part

	mu      sync.RWMutex // guards the three below
	client  *mongo.Client
	records records
	closed  bool
}

var _ semantic.IdempotencyLog = (*Log)(nil)

// records is the log's collection as one kind of server offers it.
type records interface {
	// acquire puts the attempt in the place of what it may replace and returns the
	// document as it is then, whosever attempt that is.
	acquire(ctx context.Context, a attempt) (document, error)
	// finalize records how an attempt ended. It returns false, and has written
	// nothing, if the attempt is not the current one or was finalized otherwise.
	finalize(ctx context.Context, id recordID, f semantic.Finalization) (bool, error)
}

// New returns a log that is inert until Start: it does no I/O. Errors name the
// setting that is out of range. A nil signals emits nothing.
func New(config Config, signals *observability.Signals) (*Log, error) {
	config, err := config.Settled()
	if err != nil {
		return nil, err
	}
	k := observability.NewKit(config.Telemetry, "mongo")
	l := &Log{
		config: config, signals: signals,
		tryAcquire: k.Operation("coord.idempotency_log", "try_acquire"), finalize: k.Operation("coord.idempotency_log", "finalize"),
	}
	if err := k.Err(); err != nil {
		return nil, err
	}
	l.health = config.Health.Register("mongodb", l.check)
	return l, nil
}

// check asks for the server's clock, as every call that judges an expiry does. The
// connection goes to a primary only. One round trip.
func (l *Log) check(ctx context.Context) health.Result {
	l.mu.RLock()
	client := l.client
	l.mu.RUnlock()
	if client == nil {
		return health.Result{Err: semantic.ErrClosed, Cause: "closed"}
	}
	_, err := serverTime(ctx, client.Database(l.config.Database).Collection(l.config.Collection))
	if err != nil {
		return health.Result{Err: err, Cause: "unavailable"}
	}
	return health.Result{}
}

// Start connects, finds out what the server can do, and checks or makes the indexes.
// It blocks until the log is usable or ctx ends. A log that failed to start may be
// started again; starting twice is an error, and after Close it is [semantic.ErrClosed].
func (l *Log) Start(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fmt.Errorf("mongo log: %w", semantic.ErrClosed)
	case l.client != nil:
		return errors.New("mongo log: already started")
	}
	client, err := connect(l.config)
	if err != nil {
		return err
	}
	collection := client.Database(l.config.Database).Collection(l.config.Collection)
	records, err := l.prepare(ctx, collection)
	if err != nil {
		l.signals.LogUnavailable("start", "", string(semantic.OutcomeUnavailable), err)
		return errors.Join(fmt.Errorf("mongo log is not ready: %w", err), disconnect(ctx, client))
	}
	l.client, l.records = client, records
	l.health.Started()
	return nil
}

// prepare checks the server and the collection.
func (l *Log) prepare(ctx context.Context, collection *mongo.Collection) (records, error) {
	if _, err := serverTime(ctx, collection); err != nil {
		return nil, err
	}
	if err := ensureIndexes(ctx, collection, !l.config.SkipIndexCreation, func(err error) {
		l.signals.LogTTLUnsupported(l.config.Collection, err)
	}); err != nil {
		return nil, err
	}
	full, err := hasPipelines(ctx, collection)
	if err != nil {
		return nil, err
	}
	if full {
		return pipelineRecords{collection}, nil
	}
	return plainRecords{collection}, nil
}

// Close refuses new calls, waits until ctx ends for those in flight, and closes the
// connections. Closing twice, or a log that never started, is fine.
func (l *Log) Close(ctx context.Context) error {
	l.health.Closed()
	l.mu.Lock()
	client := l.client
	l.closed, l.client, l.records = true, nil, nil
	l.mu.Unlock()
	if client == nil {
		return nil
	}
	return disconnect(ctx, client)
}

// TryAcquire records an attempt, or says that there was one; see
// [semantic.IdempotencyLog]. It blocks for a majority of the servers, and no longer
// than ctx or, without a deadline, Config.Timeout.
func (l *Log) TryAcquire(ctx context.Context, req semantic.IdempotencyRequest) (result semantic.AcquireResult) {
	_, call := l.tryAcquire.Begin(ctx, req.Key)
	defer func() { call.End(acquireOutcome(result), result.Err) }()
	if err := req.Validate(); err != nil {
		return semantic.AcquireResult{Reason: semantic.ReasonError, Err: err}
	}
	a := newAttempt(req)
	var doc document
	err := l.call(ctx, callName{"idempotency.tryAcquire", req.Key, req.Domain}, func(ctx context.Context, r records) (err error) {
		doc, err = r.acquire(ctx, a)
		return err
	})
	switch {
	case err != nil:
		return semantic.AcquireResult{Reason: semantic.ReasonError, Err: err}
	case doc.AttemptID == a.id:
		return semantic.AcquireResult{Acquired: true, Record: doc.record()}
	case doc.conflicts(req):
		return semantic.AcquireResult{Reason: semantic.ReasonConflict, Record: doc.record()}
	default:
		return semantic.AcquireResult{Reason: semantic.ReasonDuplicate, Record: doc.record()}
	}
}

// acquireOutcome names how a TryAcquire ended.
func acquireOutcome(r semantic.AcquireResult) string {
	switch {
	case r.Err != nil:
		return semantic.FailureName(r.Err)
	case r.Acquired:
		return "acquired"
	default:
		return string(r.Reason)
	}
}

// Finalize records how an attempt ended; see [semantic.IdempotencyLog]. It blocks as
// TryAcquire does.
func (l *Log) Finalize(ctx context.Context, id semantic.RecordID, f semantic.Finalization) (err error) {
	const op = "idempotency.finalize"
	_, call := l.finalize.Begin(ctx, string(id))
	defer func() {
		switch {
		case err == nil:
			call.End("finalized", nil)
		case errors.Is(err, semantic.ErrSuperseded):
			call.End("superseded", err)
		default:
			call.End(semantic.FailureName(err), err)
		}
	}()
	if err := f.Validate(id); err != nil {
		return err
	}
	rid, ok := parseRecordID(id)
	if !ok {
		return &semantic.ArgumentError{Operation: op, Argument: "id", Value: string(id), Allowed: "the ID of an acquired record"}
	}
	var current bool
	err = l.call(ctx, callName{op, string(id), ""}, func(ctx context.Context, r records) (err error) {
		current, err = r.finalize(ctx, rid, f)
		return err
	})
	if err == nil && !current {
		l.signals.LogSuperseded(string(id))
		err = fmt.Errorf("%s %q: %w", op, id, semantic.ErrSuperseded)
	}
	return err
}

// connect makes a client. The driver dials in the background.
func connect(c Config) (*mongo.Client, error) {
	o := options.Client().ApplyURI(c.URI)
	if o.Validate() != nil {
		// The driver's message may quote the URI.
		return nil, errors.New("mongo URI: cannot be used or, for mongodb+srv, looked up (its text is left out, it may hold a password)")
	}
	o.SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).SetRetryWrites(false).SetRetryReads(false).
		SetMaxAdaptiveRetries(0).SetServerSelectionTimeout(c.TryTimeout).
		SetMaxPoolSize(uint64(c.MaxPoolSize)).SetMonitor(&event.CommandMonitor{Started: markStarted})
	if c.Dial != nil {
		o.SetDialer(dialer(c.Dial))
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, errors.New("mongo URI: refused by the driver (its text is left out, it may hold a password)")
	}
	return client, nil
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

// disconnect closes a client even if ctx has ended, then without waiting for calls.
func disconnect(ctx context.Context, client *mongo.Client) error {
	if err := client.Disconnect(ctx); err != nil && !errors.Is(err, mongo.ErrClientDisconnected) {
		return fmt.Errorf("closing mongo connections: %w", err)
	}
	return nil
}

// serverTime asks the server for its clock. One round trip.
func serverTime(ctx context.Context, c *mongo.Collection) (time.Time, error) {
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	if err := c.Database().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return time.Time{}, err
	}
	if hello.LocalTime.IsZero() {
		return time.Time{}, errNoClock
	}
	return hello.LocalTime.UTC(), nil
}

var errNoClock = errors.New("the server's hello tells no localTime, so expiry cannot be judged by its clock")
