package observability

import "slices"

// InstrumentKind is what an instrument measures.
type InstrumentKind string

// The kinds of instruments.
const (
	KindCounter   InstrumentKind = "counter"         // a sum that only grows
	KindUpDown    InstrumentKind = "up-down counter" // a number of the moment
	KindHistogram InstrumentKind = "histogram"       // a distribution
	// KindObserved is read when metrics are collected, and only grows.
	KindObserved InstrumentKind = "observable counter"
	// KindGauge is read when metrics are collected.
	KindGauge InstrumentKind = "observable gauge"
)

// Instrument is one metric: what it is called and what it means.
type Instrument struct {
	Name       string
	Kind       InstrumentKind
	Unit       string // in UCUM: s, By, {call}
	Attributes []Attribute
	Meaning    string
	Buckets    []float64 // advice for a histogram's boundaries, in its unit
}

// Attribute is one dimension of an instrument. No attribute is ever a key, a tenant, a
// record or an instance: each has few values.
type Attribute struct {
	Key    string
	Values []string // all there are; none: few names that the code defines
}

// The attributes of more than one instrument.
const (
	attrOperation = "coord.operation"
	attrOutcome   = "coord.outcome"
	attrReason    = "coord.reason"
	attrKey       = "coord.key" // of spans only
	attrErrorType = "error.type"
)

// failures are the outcomes that any call can have; semantic.FailureName gives them.
var failures = []string{"unavailable", "unknown", "failed", "corrupt", "invalid", "cancelled", "closed"}

// erroneous are the outcomes that make a span's status an error: not what the caller did
// itself, and never what is an answer, such as contention.
var erroneous = []string{"unavailable", "unknown", "failed", "corrupt", "lost", "bad", "rejected", "skipped_unavailable"}

func operations(names ...string) Attribute { return Attribute{attrOperation, names} }

// outcomes are the answers of a primitive's calls, and the failures.
func outcomes(answers ...string) Attribute {
	return Attribute{attrOutcome, append(answers, failures...)}
}

// consumed are the ends of a message in hand.
var consumed = []string{"handled", "duplicate", "pending", "failed", "bad", "lost", "released"}

// AttrJob and AttrConsumer are the attributes whose values a service's code defines.
const (
	AttrJob      = "coord.job"
	AttrConsumer = "coord.consumer"
)

// messaging are the attributes that the semantic conventions give.
func messaging(more ...Attribute) []Attribute {
	return append([]Attribute{
		{attrSystem, []string{systemSQS}}, {attrDestination, nil},
		{attrOperationName, []string{"send", "receive", "delete", "change_visibility", "get_attributes", "process"}},
	}, more...)
}

// Boundaries in seconds.
var (
	// calls to a backend: a local server answers in some 50 µs, a dead one by a timeout.
	callSeconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	// waits, holds and runs.
	workSeconds = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
)

// calls are the two instruments that every primitive has.
func calls(primitive, what string, attributes ...Attribute) []Instrument {
	return []Instrument{
		{
			Name: primitive + ".calls", Kind: KindObserved, Unit: "{call}", Attributes: attributes,
			Meaning: "calls of " + what + ", by how they ended",
		},
		{
			Name: primitive + ".duration", Kind: KindHistogram, Unit: "s", Attributes: attributes, Buckets: callSeconds,
			Meaning: "how long they took; calls that were to wait are in the wait histogram instead, where there is one",
		},
	}
}

// Instruments returns every metric that Coord records, in the order of the
// documentation. No other can be made.
func Instruments() []Instrument {
	return slices.Concat(
		[]Instrument{{
			Name: SignalCounter, Kind: KindCounter, Unit: "{signal}", Attributes: []Attribute{{Key: EventField}},
			Meaning: "signals of the catalog, by their key: see the runbook",
		}},
		calls("coord.lock", "the lock",
			operations("acquire", "release"),
			outcomes("acquired", "contended", "released", "gone")),
		[]Instrument{
			{
				Name: "coord.lock.wait", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Attributes: []Attribute{operations("acquire"), outcomes("acquired", "contended")},
				Meaning:    "how long acquires with a wait waited",
			},
			{
				Name: "coord.lock.hold", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Meaning: "how long WithLock's function ran under its lock",
			},
			{
				Name: "coord.lock.lost", Kind: KindCounter, Unit: "{lock}",
				Meaning: "locks whose validity ended before WithLock's function did",
			},
		},
		calls("coord.lease", "the lease",
			operations("claim", "take_over", "renew", "release"),
			outcomes("claimed", "held", "taken_over", "renewed", "removed", "reclaimed", "no_holder")),
		[]Instrument{
			{
				Name: "coord.lease.hold", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Meaning: "how long Hold's function ran under its lease",
			},
			{
				Name: "coord.lease.lost", Kind: KindCounter, Unit: "{lease}",
				Meaning: "leases lost while Hold's function ran",
			},
		},
		calls("coord.cache", "the cache",
			operations("get", "set", "add", "replace", "touch", "delete", "get_or_fetch"),
			outcomes("hit", "miss", "stored", "loaded", "shared", "exists", "touched", "deleted")),
		[]Instrument{
			{
				Name: "coord.cache.wait", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Attributes: []Attribute{operations("get_or_fetch"), outcomes("hit", "loaded", "shared")},
				Meaning:    "how long GetOrFetch took, its load or that of another caller included",
			},
			{
				Name: "coord.cache.fetch", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Attributes: []Attribute{outcomes("loaded")},
				Meaning:    "how long loaders ran",
			},
			{
				Name: "coord.cache.lookups", Kind: KindCounter, Unit: "{lookup}",
				Attributes: []Attribute{{attrOutcome, []string{"hit", "miss", "absent", "corrupt", "error"}}},
				Meaning:    "what Get and GetOrFetch of the typed views found; absent is a cached absence",
			},
		},
		calls("coord.limiter", "the rate limiter",
			operations("try_acquire", "acquire"),
			outcomes("allowed", "denied", "denied_locally")),
		[]Instrument{
			{
				Name: "coord.limiter.wait", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Attributes: []Attribute{operations("acquire"), outcomes("allowed")},
				Meaning:    "how long Acquire waited to be admitted",
			},
			{
				Name: "coord.limiter.waiters", Kind: KindUpDown, Unit: "{caller}",
				Meaning: "callers in Acquire's lines",
			},
		},
		calls("coord.broadcast", "the broadcast channel",
			operations("publish", "subscribe"),
			outcomes("published", "subscribed")),
		[]Instrument{
			{
				Name: "coord.broadcast.messages", Kind: KindCounter, Unit: "{message}",
				Attributes: []Attribute{{attrOutcome, []string{"delivered", "overflow", "bad", "panicked"}}},
				Meaning:    "messages for this process's subscriptions: handled, dropped from a full queue, not decodable, or met by a panic of the handler",
			},
			{
				Name: "coord.broadcast.gaps", Kind: KindCounter, Unit: "{gap}",
				Attributes: []Attribute{{attrReason, []string{"link_lost", "overflow"}}},
				Meaning:    "times when a subscription may have missed messages",
			},
		},
		calls("coord.idempotency_log", "the idempotency log",
			operations("try_acquire", "finalize"),
			outcomes("acquired", "duplicate", "conflict", "finalized", "superseded")),
		calls("coord.operation", "the operation coordinator",
			operations("begin", "renew", "complete", "abandon", "read_status"),
			outcomes("acquired", "in_progress", "completed", "conflict", "renewed", "lost", "abandoned", "missing", "recovery_required", "rejected")),
		gate(),
		[]Instrument{
			{
				Name: "coord.fanout.records", Kind: KindCounter, Unit: "{record}",
				Attributes: []Attribute{{attrOutcome, []string{"enqueued", "failed", "skipped"}}},
				Meaning:    "records of fan-outs, by what became of them",
			},
			{
				Name: "coord.fanout.duration", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Attributes: []Attribute{outcomes("enqueued")},
				Meaning:    "how long a whole Enqueue took, its scan included",
			},
			{
				Name: "coord.consumer.messages", Kind: KindCounter, Unit: "{message}",
				Attributes: []Attribute{{AttrConsumer, nil}, {attrOutcome, consumed}},
				Meaning:    "messages whose turn came, by their end: handled; recognised as handled before; left to an attempt that has not ended; failed or not decodable, to come back; lost to another replica; given back by a stop",
			},
			{
				Name: "coord.consumer.in_flight", Kind: KindUpDown, Unit: "{message}",
				Attributes: []Attribute{{attrDestination, nil}},
				Meaning:    "messages in hand",
			},
			{
				Name: "messaging.client.operation.duration", Kind: KindHistogram, Unit: "s", Buckets: callSeconds,
				Attributes: messaging(Attribute{attrOperationType, []string{"send", "receive", "settle"}}, Attribute{attrErrorType, failures}),
				Meaning:    "requests to SQS, the wait of a long poll included; error.type of those that failed only",
			},
			{
				Name: "messaging.client.sent.messages", Kind: KindCounter, Unit: "{message}", Attributes: messaging(),
				Meaning: "messages in requests to send, repeated ones included",
			},
			{
				Name: "messaging.client.consumed.messages", Kind: KindCounter, Unit: "{message}", Attributes: messaging(),
				Meaning: "messages received",
			},
			{
				Name: "messaging.process.duration", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Attributes: messaging(Attribute{attrOperationType, []string{"process"}}, Attribute{attrErrorType, slices.Concat(failures, []string{"lost", "bad"})}),
				Meaning:    "from taking a message to its end, the idempotency log included",
			},
			{
				Name: "coord.cron.ticks", Kind: KindCounter, Unit: "{tick}",
				Attributes: []Attribute{{AttrJob, nil}, {attrOutcome, []string{"completed", "failed", "interrupted", "gated", "skipped_overlap", "skipped_unavailable", "missed"}}},
				Meaning:    "ticks on this replica, by how they ended; ticks missed in a row are noticed, and counted, once",
			},
			{
				Name: "coord.cron.run", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Attributes: []Attribute{{AttrJob, nil}, {attrOutcome, []string{"completed", "failed", "interrupted"}}},
				Meaning:    "how long runs took",
			},
			{
				Name: "coord.cron.lag", Kind: KindHistogram, Unit: "s", Buckets: workSeconds,
				Attributes: []Attribute{{AttrJob, nil}},
				Meaning:    "from a tick's scheduled instant to the start of its run",
			},
			{
				Name: "coord.cron.organizations", Kind: KindCounter, Unit: "{attempt}",
				Attributes: []Attribute{{AttrJob, nil}, {attrOutcome, []string{"enqueued", "gated", "failed"}}},
				Meaning:    "calls of TryEnqueueOrgJob, by their result",
			},
		},
	)
}

// gate are the figures of the operation coordinator's gate, which it observes itself.
func gate() []Instrument {
	figure := func(name, unit, meaning string, kind InstrumentKind) Instrument {
		return Instrument{Name: "coord.operation.gate." + name, Kind: kind, Unit: unit, Meaning: meaning}
	}
	return []Instrument{
		figure("active", "{command}", "commands that have a slot", KindGauge),
		figure("queued", "{command}", "commands that wait for a slot", KindGauge),
		figure("queued_bytes", "By", "keys and arguments of the waiting commands", KindGauge),
		figure("dispatched", "{command}", "commands that got a slot", KindObserved),
		figure("rejected", "{command}", "commands refused because the queue was full", KindObserved),
		figure("expired", "{command}", "commands that waited longer than the queue deadline", KindObserved),
		figure("cancelled", "{command}", "commands whose caller left while they waited", KindObserved),
		figure("timeouts", "{command}", "commands that outlasted the command deadline", KindObserved),
	}
}

// instrument finds one by its name.
func instrument(name string) (Instrument, bool) {
	all := Instruments()
	i := slices.IndexFunc(all, func(d Instrument) bool { return d.Name == name })
	if i < 0 {
		return Instrument{}, false
	}
	return all[i], true
}
