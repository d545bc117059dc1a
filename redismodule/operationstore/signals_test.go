package operationstore

import (
	"errors"
	"testing"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func TestACommandThatIsNotDispatchedIsSignalled(t *testing.T) {
	p := testkit.StartProxy(t, testkit.StartRedis(t).Addr())
	signals, logs := watched()
	o := openWith(t, signals, p.Addr())
	begin(t, o, identity("before"), operation.BeginAcquired)

	p.Refuse(true)
	p.Reset()
	_, err := o.Begin(t.Context(), identity("after"))
	if !errors.Is(err, operation.ErrUnavailable) && !errors.Is(err, operation.ErrUnknown) {
		t.Fatalf("begin on a cut link: %v", err)
	}
	if _, err = o.Begin(t.Context(), identity("refused")); !errors.Is(err, operation.ErrUnavailable) {
		t.Fatalf("begin without a link: %v, want unavailable", err)
	}
	if emitted(logs, observability.OperationUnavailable) == 0 {
		t.Errorf("signals %v, want %s", logs.All(), observability.OperationUnavailable)
	}
}
