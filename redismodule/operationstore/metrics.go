package operationstore

import "github.com/wrkbelt/coord/observability"

// figures are the gate's statistics as metrics, in the order of Stats.values.
var figures = []observability.Figure{
	{Name: "coord.operation.gate.active", Unit: "{command}", Description: "commands that have a slot"},
	{Name: "coord.operation.gate.queued", Unit: "{command}", Description: "commands that wait for a slot"},
	{Name: "coord.operation.gate.queued_bytes", Unit: "By", Description: "keys and arguments of the waiting commands"},
	{Name: "coord.operation.gate.dispatched", Unit: "{command}", Description: "commands that got a slot", Counter: true},
	{Name: "coord.operation.gate.rejected", Unit: "{command}", Description: "commands refused because the queue was full", Counter: true},
	{Name: "coord.operation.gate.expired", Unit: "{command}", Description: "commands that waited longer than the queue deadline", Counter: true},
	{Name: "coord.operation.gate.cancelled", Unit: "{command}", Description: "commands whose caller left while they waited", Counter: true},
	{Name: "coord.operation.gate.timeouts", Unit: "{command}", Description: "commands that outlasted the command deadline", Counter: true},
}

func (s Stats) values() []int64 {
	return []int64{
		int64(s.Active), int64(s.Queued), int64(s.QueuedBytes), int64(s.Dispatched), //nolint:gosec // counts
		int64(s.Rejected), int64(s.Expired), int64(s.Cancelled), int64(s.CommandTimeouts), //nolint:gosec // counts
	}
}
