package operation_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// payment is a row of the service's database: the coordinator never sees it.
type payment struct {
	id, charge string
}

// provider takes payments, once for each key.
type provider map[string]string

func (p provider) charge(key string) string {
	if p[key] == "" {
		p[key] = fmt.Sprintf("ch_%d", len(p)+1)
	}
	return p[key]
}

// The sequence to follow: an attempt that dies after the provider was asked is followed by
// one that reconciles, and the money is taken once.
func Example() {
	clock := testkit.NewClock()
	var coordinator operation.Coordinator = testkit.NewOperationCoordinator(clock) // in production: operationstore.Open
	row, bank := &payment{id: "payment-1"}, provider{}

	pay := func(ctx context.Context, dies bool) error {
		fingerprint, err := operation.PaymentFingerprint(operation.Payment{
			Tenant: "acme", FromAccount: "acct:1", ToAccount: "acct:2", Currency: "EUR", AmountMinor: 1200,
		})
		if err != nil {
			return err
		}
		begun, err := coordinator.Begin(ctx, operation.Identity{
			Tenant: "acme", Operation: "charge", IdempotencyKey: "request-7",
			Fingerprint: fingerprint, DurableID: row.id,
		})
		if err != nil {
			return err // see the package's errors for what each one means
		}
		switch begun.Outcome {
		case operation.BeginInProgress:
			fmt.Println("pending for", begun.Remaining)
			return nil
		case operation.BeginCompleted:
			fmt.Println("already done:", begun.ResultRef)
			return nil
		case operation.BeginConflict:
			return errors.New("this key was used for another payment")
		}
		fmt.Printf("attempt %d, takeover %v\n", begun.Lease.Attempt, begun.Lease.Takeover)
		// Reconcile: the row may be final, and the provider may have been asked. Its key
		// is the same in every attempt.
		if row.charge == "" {
			key, err := operation.ProviderKey(row.id, "bank:main")
			if err != nil {
				return err
			}
			charge := bank.charge(key)
			if dies {
				return nil // as a crash: nothing is stored, nothing given up
			}
			row.charge = charge // with its outbox record, in one transaction
		}
		done, err := coordinator.Complete(ctx, begun.Lease, row.charge)
		fmt.Println(done.Outcome, row.charge)
		return err
	}

	ctx := context.Background()
	fmt.Println(pay(ctx, true))
	fmt.Println(pay(ctx, false))
	clock.Advance(operation.DefaultLease)
	fmt.Println(pay(ctx, false))
	fmt.Println(pay(ctx, false))
	fmt.Println(len(bank), "charge")
	// Output:
	// attempt 1, takeover false
	// <nil>
	// pending for 30s
	// <nil>
	// attempt 2, takeover true
	// completed ch_1
	// <nil>
	// already done: ch_1
	// <nil>
	// 1 charge
}

// Work that can outlast the lease is done under Hold, which renews it. When the lease is
// lost the work's context ends.
func ExampleHold() {
	coordinator := testkit.NewOperationCoordinator(nil)
	ctx := context.Background()
	begun, err := coordinator.Begin(ctx, operation.Identity{
		Tenant: "acme", Operation: "export", IdempotencyKey: "2026-06",
		Fingerprint: mustFingerprint("export-v1", "2026-06"), DurableID: "export-2026-06",
	})
	if err != nil || begun.Outcome != operation.BeginAcquired {
		fmt.Println(begun.Outcome, err)
		return
	}
	err = operation.Hold(ctx, coordinator, begun.Lease, func(ctx context.Context) error {
		return ctx.Err() // the work: stop when ctx ends
	})
	if errors.Is(err, operation.ErrLeaseLost) {
		fmt.Println("lost: the next begin reconciles")
		return
	}
	done, err := coordinator.Complete(ctx, begun.Lease, "exports/2026-06.csv")
	fmt.Println(done.Outcome, err)
	// Output: completed <nil>
}

// After a Begin whose reply was lost for good, a Begin under its token gets the lease that
// it may have taken, at once.
func ExampleWithToken() {
	backend := testkit.NewOperationBackend(nil)
	coordinator := backend.Client(time.Minute, 0)
	ctx := context.Background()
	id := operation.Identity{
		Tenant: "acme", Operation: "refund", IdempotencyKey: "r-1",
		Fingerprint: mustFingerprint("refund-v1", "order-1"), DurableID: "refund-1",
	}
	heal := backend.Inject(testkit.FaultLoseReplies)
	_, err := coordinator.Begin(ctx, id)
	heal()
	var unknown *operation.UnknownError
	if errors.As(err, &unknown) {
		begun, err := coordinator.Begin(ctx, id, operation.WithToken(unknown.Token))
		fmt.Println(begun.Outcome, begun.Lease.Attempt, err)
	}
	// Output: acquired 1 <nil>
}

// Named fields have one digest whatever their order, and none does not.
func ExampleFingerprintNamed() {
	one, err := operation.FingerprintNamed("ticket-v1", map[string]string{"seat": "12A", "buyer": "acct:7"})
	fmt.Println(len(one), err)
	_, err = operation.FingerprintNamed("ticket-v1", map[string]string{"seat": "", "buyer": "acct:7"})
	fmt.Println(err)
	// Output:
	// 64 <nil>
	// operation: fingerprint field "seat": want 1 to 512 bytes of valid UTF-8 without control characters
}

// The provider's key is made of the durable id: it is the same in every attempt.
func ExampleProviderKey() {
	key, err := operation.ProviderKey("payment-1", "stripe:acct_1")
	fmt.Println(key, err)
	// Output: lltx-provider-v1-a9b35eb09176ac0fdd78f9779216d104eee81370c2f684b5131b1a114e5b49d8 <nil>
}

func mustFingerprint(domain string, fields ...string) string {
	f, err := operation.Fingerprint(domain, fields...)
	if err != nil {
		panic(err)
	}
	return f
}
