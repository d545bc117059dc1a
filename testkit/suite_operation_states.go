package testkit

import (
	"fmt"

	"github.com/wrkbelt/coord/semantic/operation"
)

// operationState is what is recorded of an operation before a command comes.
type operationState string

const (
	stateNone      operationState = "no record"
	stateLive      operationState = "a live lease"
	stateExpired   operationState = "an expired lease"
	stateCompleted operationState = "a completed operation"
)

// operationRow is one row of the state table: a command, by whom, with what, and its
// outcome in each state.
type operationRow struct {
	command  string
	other    bool // by another attempt than the one recorded
	otherRef bool
	identity func(operation.Identity) operation.Identity // nil: the recorded one

	none, live, expired, completed string
}

// operationRows is the state table. The answer to another fingerprint or durable id is
// conflict in every state that has a record; renew and abandon say lost, as the lease
// they are about is not there.
func operationRows() []operationRow {
	rows := []operationRow{
		{command: "begin", none: "acquired", live: "acquired", expired: "acquired", completed: "completed"},
		{command: "begin", other: true, none: "acquired", live: "in_progress", expired: "acquired", completed: "completed"},
		{command: "renew", none: "lost", live: "renewed", expired: "lost", completed: "lost"},
		{command: "renew", other: true, none: "lost", live: "lost", expired: "lost", completed: "lost"},
		{command: "complete", none: "lost", live: "completed", expired: "lost", completed: "completed"},
		{command: "complete", other: true, none: "lost", live: "lost", expired: "lost", completed: "completed"},
		{command: "complete", otherRef: true, none: "lost", live: "completed", expired: "lost", completed: "conflict"},
		{command: "complete", other: true, otherRef: true, none: "lost", live: "lost", expired: "lost", completed: "conflict"},
		{command: "abandon", none: "lost", live: "abandoned", expired: "lost", completed: "lost"},
		{command: "abandon", other: true, none: "lost", live: "lost", expired: "lost", completed: "lost"},
		{command: "readStatus", none: "missing", live: "in_progress", expired: "recovery_required", completed: "completed"},
	}
	for _, identity := range []func(operation.Identity) operation.Identity{otherFingerprint, otherDurable} {
		for _, command := range []string{"begin", "renew", "complete", "abandon", "readStatus"} {
			for _, other := range []bool{false, true} {
				row := operationRow{command: command, other: other, identity: identity, live: "conflict", expired: "conflict", completed: "conflict"}
				switch command {
				case "begin":
					row.none = "acquired"
				case "readStatus":
					row.none = "missing"
				case "complete":
					row.none = "lost"
				default:
					row.none, row.live, row.expired, row.completed = "lost", "lost", "lost", "lost"
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func (r operationRow) want(state operationState) string {
	return map[operationState]string{stateNone: r.none, stateLive: r.live, stateExpired: r.expired, stateCompleted: r.completed}[state]
}

// changes tells whether the row's outcome in state comes with a change of the record.
func (r operationRow) changes(state operationState) bool {
	switch want := r.want(state); want {
	case "acquired":
		return state != stateLive
	case "renewed", "abandoned":
		return true
	case "completed":
		return state == stateLive
	}
	return false
}

// operationStateCases are the state table, one case for each state.
func operationStateCases() []Case[operation.Coordinator] {
	var cases []Case[operation.Coordinator]
	for _, state := range []operationState{stateNone, stateLive, stateExpired, stateCompleted} {
		cases = append(cases, Case[operation.Coordinator]{
			Name: "every command answers as it should on " + string(state),
			Run: func(t T, b operations) {
				c := b.New(t, 1)[0]
				rows := operationRows()
				leases := make([]operation.Lease, len(rows))
				for i := range rows {
					leases[i] = recorded(t, c, operationID(fmt.Sprint("state-", i)), state)
				}
				if state == stateExpired {
					b.Advance(OperationLease)
				}
				for i, row := range rows {
					row.check(t, b, c, leases[i], state)
				}
			},
		})
	}
	return cases
}

// recorded brings an operation into a state, but for the time that makes it expire, and
// returns the lease of the attempt that is recorded, or one that never was.
func recorded(t T, c coordinator, id operation.Identity, state operationState) operation.Lease {
	t.Helper()
	if state == stateNone {
		return operation.Lease{Identity: id, Token: operation.NewToken()}
	}
	lease := mustBegin(t, c, id, operation.BeginAcquired).Lease
	if state == stateCompleted {
		mustComplete(t, c, lease, "ref", operation.CompleteCompleted)
	}
	return lease
}

func (r operationRow) check(t T, b operations, c coordinator, lease operation.Lease, state operationState) {
	t.Helper()
	id := lease.Identity
	if state == stateLive {
		// Fresh, however long the rows before it took.
		mustRenew(t, c, lease, operation.RenewRenewed)
	}
	before, err := c.ReadStatus(t.Context(), id)
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	if r.other {
		lease.Token = operation.NewToken()
	}
	if r.identity != nil {
		lease.Identity = r.identity(id)
	}
	ref := "ref"
	if r.otherRef {
		ref = "other-ref"
	}
	got, err := r.send(t, c, lease, ref)
	describe := fmt.Sprintf("%s on %s, other attempt %v, other reference %v, other identity %v", r.command, state, r.other, r.otherRef, r.identity != nil)
	if err != nil || got != r.want(state) {
		t.Errorf("%s: %q, %v; want %q", describe, got, err, r.want(state))
		return
	}
	if r.changes(state) {
		return
	}
	after, err := c.ReadStatus(t.Context(), id)
	if err != nil || after.Outcome != before.Outcome || after.ResultRef != before.ResultRef || after.Remaining > before.Remaining {
		t.Errorf("%s: changed %+v to %+v, %v", describe, before, after, err)
	}
}

// send makes the row's call and checks what comes with its outcome.
func (r operationRow) send(t T, c coordinator, lease operation.Lease, ref string) (string, error) {
	t.Helper()
	switch r.command {
	case "begin":
		got, err := c.Begin(t.Context(), lease.Identity, operation.WithToken(lease.Token))
		if acquired := got.Outcome == operation.BeginAcquired; err == nil && (!got.Outcome.Valid() || got.MustReconcile != acquired ||
			acquired != (got.Lease.Token != "") || (got.Outcome == operation.BeginInProgress) != (got.Remaining > 0) ||
			(got.Outcome == operation.BeginCompleted) != (got.ResultRef == "ref")) {
			t.Errorf("begin: inconsistent %+v", got)
		}
		return string(got.Outcome), err
	case "renew":
		got, err := c.Renew(t.Context(), lease)
		return string(got.Outcome), err
	case "complete":
		got, err := c.Complete(t.Context(), lease, ref)
		if err == nil && got.Outcome == operation.CompleteCompleted && got.ResultRef != ref {
			t.Errorf("complete: reference %q, want %q", got.ResultRef, ref)
		}
		return string(got.Outcome), err
	case "abandon":
		got, err := c.Abandon(t.Context(), lease)
		return string(got.Outcome), err
	}
	got, err := c.ReadStatus(t.Context(), lease.Identity)
	if err == nil && ((got.Outcome == operation.StatusInProgress) != (got.Remaining > 0) || (got.Outcome == operation.StatusCompleted) != (got.ResultRef == "ref")) {
		t.Errorf("status: inconsistent %+v", got)
	}
	return string(got.Outcome), err
}
