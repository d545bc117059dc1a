package sqsfanout

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
)

// Config describes the queues and this instance's use of them. The zero value is
// valid: it has no queue, which is refused only where one is needed.
type Config struct {
	// QueueURL is the FIFO queue of every domain that Queues does not list
	// (COORD_SQS_QUEUE_URL).
	QueueURL string
	// Queues gives domains a queue of their own, so that they share neither workers
	// nor a dead-letter queue with others.
	Queues map[string]string

	// API is the client to use. Without one, a client is made at start of the SDK's
	// default chain: environment, shared files, container or instance role.
	API API
	// Region and EndpointURL change what the default chain says; both may be empty.
	Region, EndpointURL string

	// Concurrency is how many batches of one Enqueue are in flight at once, 1 to 100;
	// default 4.
	Concurrency int
	// Attempts is how often a record is sent that fails for a reason that may pass,
	// 1 to 20; default 5.
	Attempts int
	// CallTimeout bounds one request, 100 ms to 1 min; default 10 s. A receive has it
	// beyond PollWait.
	CallTimeout time.Duration
	// PollWait is how long a receive waits for a message, 1 to 10 whole seconds;
	// default 5 s. A stop waits for a receive under way, so keep it below the stop
	// budget.
	PollWait time.Duration
	// AllowNoRedrive accepts a queue without a dead-letter queue, whose bad messages
	// then block their group until they expire.
	AllowNoRedrive bool

	// Telemetry receives metrics and spans; the zero value means none. With a Tracer,
	// messages carry the trace context of their Enqueue.
	Telemetry observability.Telemetry

	// Health, which may be nil, learns whether the queues can be reached, as its parts
	// sqs_producer and sqs.consumer. Each check is a request for each queue.
	Health *health.Health

	// Clock is for tests; the system's otherwise.
	Clock semantic.Clock
}

// errNoQueue names the missing setting.
var errNoQueue = errors.New("sqs QueueURL: not set: want the URL of a FIFO queue (COORD_SQS_QUEUE_URL)")

// Settled returns the config with its defaults filled in, or every setting that is out
// of range. Messages never contain credentials.
func (c Config) Settled() (Config, error) {
	var bad []error
	refuse := func(setting string, value any, allowed string) {
		bad = append(bad, fmt.Errorf("sqs %s: %v: want %s", setting, value, allowed))
	}
	number(&c.Concurrency, 4, 1, 100, "Concurrency", refuse)
	number(&c.Attempts, 5, 1, 20, "Attempts", refuse)
	number(&c.CallTimeout, 10*time.Second, 100*time.Millisecond, time.Minute, "CallTimeout", refuse)
	number(&c.PollWait, 5*time.Second, time.Second, 10*time.Second, "PollWait", refuse)
	if c.PollWait%time.Second != 0 {
		refuse("PollWait", c.PollWait, "whole seconds")
	}
	checkQueue("QueueURL", c.QueueURL, refuse)
	checkURL("EndpointURL", c.EndpointURL, refuse)
	for _, domain := range slices.Sorted(maps.Keys(c.Queues)) {
		queue := c.Queues[domain]
		if err := semantic.ValidateName("sqs", "Queues", domain); err != nil {
			bad = append(bad, err)
		}
		if queue == "" {
			refuse(fmt.Sprintf("Queues[%q]", domain), "not set", "the URL of a FIFO queue")
		}
		checkQueue(fmt.Sprintf("Queues[%q]", domain), queue, refuse)
	}
	if c.Clock == nil {
		c.Clock = semantic.SystemClock{}
	}
	return c, errors.Join(bad...)
}

// checkQueue accepts the URL of a FIFO queue: SQS makes their names end in .fifo.
func checkQueue(setting, value string, refuse func(string, any, string)) {
	if checkURL(setting, value, refuse) && value != "" && !strings.HasSuffix(value, ".fifo") {
		refuse(setting, fmt.Sprintf("%q", value), "the URL of a FIFO queue, which ends in .fifo")
	}
}

// checkURL accepts no user info, so that no message can ever repeat a password.
func checkURL(setting, value string, refuse func(string, any, string)) (ok bool) {
	if value == "" {
		return true
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		refuse(setting, "not usable (its text is left out, it may hold a password)", "https://host/path without user info")
		return false
	}
	return true
}

// number fills in a default and checks a range.
func number[N int | time.Duration](value *N, standard, least, most N, setting string, refuse func(string, any, string)) {
	if *value == 0 {
		*value = standard
	}
	if *value < least || *value > most {
		refuse(setting, *value, fmt.Sprintf("%v to %v", least, most))
	}
}

// queue is the URL of the domain's queue.
func (c Config) queue(domain string) (string, error) {
	if own, ok := c.Queues[domain]; ok {
		return own, nil
	}
	if c.QueueURL == "" {
		return "", errNoQueue
	}
	return c.QueueURL, nil
}
