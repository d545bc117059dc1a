package health

import (
	"encoding/json"
	"net/http"
	"time"
)

// State is how a service or a part of it is.
type State string

// The states.
const (
	OK         State = "ok"
	Failing    State = "failing"
	NotStarted State = "not_started" // a part, before its start
	Closed     State = "closed"      // a part, after its close
	Starting   State = "starting"    // a service with a part that is not started, or with none
	Stopping   State = "stopping"    // a service that said so
)

// Report is what a [Health.Check] found.
type Report struct {
	State State     `json:"state"`
	Parts []Finding `json:"parts,omitempty"`
}

// Ready tells whether the service can do its work.
func (r Report) Ready() bool { return r.State == OK }

// Part returns the finding of the part called name.
func (r Report) Part(name string) (Finding, bool) {
	for _, f := range r.Parts {
		if f.Name == name {
			return f, true
		}
	}
	return Finding{}, false
}

// Finding is how one part is.
type Finding struct {
	Name  string        // redis, redis_subscriber, mongodb, sqs_producer, sqs_consumer, operations
	State State         // ok, failing, not_started or closed
	Cause string        // why it is failing, in one word
	Took  time.Duration // the answer; 0 for who was not asked, or did not answer
	Pool  *Pool
	// Subscriptions are told by their names here and by their number in JSON, where
	// anybody may read it: names are the service's own.
	Subscriptions []Subscription
	// Err is the whole cause. It may name addresses and is left out of JSON.
	Err error
}

// Subscription is one channel that the service listens to.
type Subscription struct {
	Channel string
	// Confirmed: the server has confirmed it on the present link. Without that, what is
	// published is missed.
	Confirmed bool
}

// Pool is the state of a connection pool.
type Pool struct {
	Total    uint32 `json:"total"`    // connections
	Idle     uint32 `json:"idle"`     // of them, not in use
	Waits    uint32 `json:"waits"`    // times somebody had to wait for one
	Timeouts uint32 `json:"timeouts"` // times somebody waited in vain
	Stale    uint32 `json:"stale"`    // connections that were found broken and closed
}

// MarshalJSON writes what anybody may read: no address, no name of the service's own, no
// error's text.
func (f Finding) MarshalJSON() ([]byte, error) {
	type subscriptions struct {
		Total     int `json:"total"`
		Confirmed int `json:"confirmed"`
	}
	out := struct {
		Name          string         `json:"name"`
		State         State          `json:"state"`
		Cause         string         `json:"cause,omitempty"`
		TookMS        float64        `json:"took_ms"`
		Pool          *Pool          `json:"pool,omitempty"`
		Subscriptions *subscriptions `json:"subscriptions,omitempty"`
	}{Name: f.Name, State: f.State, Cause: f.Cause, TookMS: float64(f.Took.Microseconds()) / 1000, Pool: f.Pool}
	if f.Subscriptions != nil {
		out.Subscriptions = &subscriptions{Total: len(f.Subscriptions)}
		for _, s := range f.Subscriptions {
			if s.Confirmed {
				out.Subscriptions.Confirmed++
			}
		}
	}
	return json.Marshal(out)
}

// ServeHTTP answers a readiness probe: 200 when the service is ready and 503 when it is
// not, with the [Report] as JSON. It takes no longer than [Budget].
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "want GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	report := h.Check(r.Context())
	body, err := json.Marshal(report)
	if err != nil {
		http.Error(w, "the report cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !report.Ready() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(append(body, '\n'))
	}
}
