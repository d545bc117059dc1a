package operation

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

type vectors struct {
	Identities []struct {
		Namespace, Tenant, Operation, IdempotencyKey, Key string
	}
	Fingerprints []struct {
		Domain      string
		Fields      []string
		Fingerprint string
	}
	Payments []struct {
		Tenant, FromAccount, ToAccount, Currency, AmountMinor, Fingerprint string
	}
	ProviderKeys []struct{ DurableID, ProviderAccount, Key string }
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Identities) < 30 || len(v.Fingerprints) < 15 || len(v.Payments) < 3 || len(v.ProviderKeys) < 2 {
		t.Fatal("vectors are missing")
	}
	return v
}

func TestKeysAndDigestsAreTheBytesOfAnIndependentEncoder(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Identities {
		id := Identity{
			Tenant: c.Tenant, Operation: c.Operation, IdempotencyKey: c.IdempotencyKey,
			Fingerprint: strings.Repeat("0", 64), DurableID: "d",
		}
		if err := id.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if got := RecordKey(c.Namespace, id); got != c.Key {
			t.Errorf("key of %+v is %s", c, got)
		}
	}
	for _, c := range v.Fingerprints {
		if got, err := Fingerprint(c.Domain, c.Fields...); err != nil || got != c.Fingerprint {
			t.Errorf("fingerprint of %+v is %s, %v", c, got, err)
		}
	}
	for _, c := range v.Payments {
		amount, err := strconv.ParseInt(c.AmountMinor, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		p := Payment{Tenant: c.Tenant, FromAccount: c.FromAccount, ToAccount: c.ToAccount, Currency: c.Currency, AmountMinor: amount}
		if got, err := PaymentFingerprint(p); err != nil || got != c.Fingerprint {
			t.Errorf("fingerprint of %+v is %s, %v", c, got, err)
		}
	}
	for _, c := range v.ProviderKeys {
		if got, err := ProviderKey(c.DurableID, c.ProviderAccount); err != nil || got != c.Key || len(got) != 81 {
			t.Errorf("provider key of %+v is %s, %v", c, got, err)
		}
	}
}

// The digests that were published for the reference, computed elsewhere.
func TestPublishedDigestsHold(t *testing.T) {
	payment, err := PaymentFingerprint(Payment{Tenant: "acme", FromAccount: "acct:1", ToAccount: "acct:2", Currency: "USD", AmountMinor: 1200})
	if err != nil || payment != "9816f5cc0f53f6644b4870b643bba0319f980aa1c3dbf509f85c2e4b0bfc8fa9" {
		t.Errorf("payment %s, %v", payment, err)
	}
	key, err := ProviderKey("payment-1", "stripe:acct_1")
	if err != nil || key != "lltx-provider-v1-a9b35eb09176ac0fdd78f9779216d104eee81370c2f684b5131b1a114e5b49d8" {
		t.Errorf("provider key %s, %v", key, err)
	}
	// encoding/json gives ebe7d42d… or a3e0fd0d… for this one.
	if got := digest("ns", "a\"\\<&>\u2028é😀", "op", "k"); !strings.HasPrefix(got, "2769f1e7") {
		t.Errorf("digest %s", got)
	}
}

// node finds Node.js; without it what is recorded is tested alone.
func node(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("node is not installed")
		}
		t.Skip("node is not installed: the comparison is not run, the recorded vectors are")
	}
	return program
}

// The vectors are what the script next to them prints, and nobody's else.
func TestTheRecordedVectorsAreThoseOfNode(t *testing.T) {
	recorded, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node(t), "testdata/vectors.mjs")
	cmd.Stderr = os.Stderr
	computed, err := cmd.Output()
	if err != nil || !bytes.Equal(computed, recorded) {
		t.Errorf("node testdata/vectors.mjs prints something else than testdata/vectors.json: %v", err)
	}
}

func TestRandomTuplesEqualThoseOfNode(t *testing.T) {
	node := node(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	interesting := []rune("\"\\/<>&'`\u2028\u2029\u0000\u0008\t\n\u000b\f\r\u001f\u007f\u0080é漢😀\ufeff\uffff\U0010ffff")
	tuples := make([][]string, 2000)
	for i := range tuples {
		for range 1 + r.IntN(5) {
			var b strings.Builder
			for range r.IntN(12) {
				c := interesting[r.IntN(len(interesting))]
				if r.IntN(3) == 0 {
					if c = rune(r.IntN(0x10ffff)); !utf8.ValidRune(c) {
						c = 'x'
					}
				}
				b.WriteRune(c)
			}
			tuples[i] = append(tuples[i], b.String())
		}
	}
	in, err := json.Marshal(tuples)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "testdata/vectors.mjs", "-")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	if err := json.Unmarshal(out, &want); err != nil || len(want) != len(tuples) {
		t.Fatalf("%d digests, %v", len(want), err)
	}
	for i, tuple := range tuples {
		if got := digest(tuple...); got != want[i] {
			t.Errorf("%q: %s, node has %s", tuple, got, want[i])
		}
	}
}

func FuzzTupleIsJSONThatDecodesToItself(f *testing.F) {
	f.Add("a\"b", "\u2028<>&")
	f.Add("\x00\x1f\x7f", "😀")
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			t.Skip()
		}
		var back []string
		if err := json.Unmarshal(appendTuple(nil, []string{a, b}), &back); err != nil || len(back) != 2 || back[0] != a || back[1] != b {
			t.Fatalf("%q %q became %q, %v", a, b, back, err)
		}
	})
}
