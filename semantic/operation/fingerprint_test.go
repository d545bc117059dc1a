package operation

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func payment() Payment {
	return Payment{Tenant: "acme", FromAccount: "acct:1", ToAccount: "acct:2", Currency: "USD", AmountMinor: 1200}
}

func TestPaymentIsRefusedOutsideItsBounds(t *testing.T) {
	change := func(f func(*Payment)) Payment { p := payment(); f(&p); return p }
	for _, c := range []struct {
		name     string
		payment  Payment
		argument string
	}{
		{"as it should be", payment(), ""},
		{"greatest amount", change(func(p *Payment) { p.AmountMinor = math.MaxInt64 }), ""},
		{"no amount", change(func(p *Payment) { p.AmountMinor = 0 }), "amountMinor"},
		{"negative amount", change(func(p *Payment) { p.AmountMinor = -1 }), "amountMinor"},
		{"no tenant", change(func(p *Payment) { p.Tenant = "" }), "tenant"},
		{"tenant with a control character", change(func(p *Payment) { p.Tenant = "a\tb" }), "tenant"},
		{"account of 128", change(func(p *Payment) { p.FromAccount = strings.Repeat("a", 128) }), ""},
		{"account of 129", change(func(p *Payment) { p.FromAccount = strings.Repeat("a", 129) }), "fromAccount"},
		{"account with a space", change(func(p *Payment) { p.ToAccount = "a b" }), "toAccount"},
		{"same account", change(func(p *Payment) { p.ToAccount = p.FromAccount }), "toAccount"},
		{"euro", change(func(p *Payment) { p.Currency = "EUR" }), ""},
		{"first of the list", change(func(p *Payment) { p.Currency = "AED" }), ""},
		{"last of the list", change(func(p *Payment) { p.Currency = "ZWG" }), ""},
		{"small letters", change(func(p *Payment) { p.Currency = "usd" }), "currency"},
		{"three letters that are no code", change(func(p *Payment) { p.Currency = "ABC" }), "currency"},
		{"a code's end and the next one's beginning", change(func(p *Payment) { p.Currency = "D A" }), "currency"},
		{"withdrawn code", change(func(p *Payment) { p.Currency = "DEM" }), "currency"},
		{"gold, which has no minor unit", change(func(p *Payment) { p.Currency = "XAU" }), "currency"},
		{"no currency", change(func(p *Payment) { p.Currency = "XXX" }), "currency"},
		{"two letters", change(func(p *Payment) { p.Currency = "US" }), "currency"},
		{"empty currency", change(func(p *Payment) { p.Currency = "" }), "currency"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := PaymentFingerprint(c.payment)
			wantInvalid(t, err, c.argument)
			if (got == "") != (c.argument != "") {
				t.Fatalf("fingerprint %q", got)
			}
		})
	}
}

func TestTheCurrencyListIsSortedAndWellFormed(t *testing.T) {
	codes := strings.Fields(currencies)
	if len(codes) != 165 {
		t.Errorf("%d codes", len(codes))
	}
	for i, c := range codes {
		if len(c) != 3 || strings.Trim(c, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || !isCurrency(c) {
			t.Errorf("%q is no code", c)
		}
		if i > 0 && codes[i-1] >= c {
			t.Errorf("%s follows %s", c, codes[i-1])
		}
	}
}

func TestFingerprintIsRefusedOutsideItsBounds(t *testing.T) {
	_, err := Fingerprint(strings.Repeat("d", 64), strings.Repeat("f", 512))
	wantInvalid(t, err, "")
	_, err = Fingerprint(strings.Repeat("d", 65))
	wantInvalid(t, err, "fingerprint domain")
	_, err = Fingerprint("d", "ok", strings.Repeat("f", 513))
	wantInvalid(t, err, "fingerprint field 1")
	_, err = Fingerprint("d", "")
	wantInvalid(t, err, "fingerprint field 0")
	_, err = Fingerprint("d", "\xc3")
	wantInvalid(t, err, "fingerprint field 0")
	_, err = ProviderKey("a b", "x")
	wantInvalid(t, err, "durableId")
	_, err = ProviderKey("a", strings.Repeat("x", 129))
	wantInvalid(t, err, "providerAccount")
}

// Random tuples over an alphabet of everything that could blur where one field ends.
func TestDifferentInputHasADifferentDigest(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	alphabet := []string{"a", "\"", "\\", ",", "\",\"", "[", "]", " ", "<", "\u2028", "é"}
	word := func() string {
		var b strings.Builder
		for range 1 + r.IntN(3) {
			b.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	seen := map[string]string{}
	for range 20_000 {
		tuple := make([]string, 1+r.IntN(4))
		for i := range tuple {
			tuple[i] = word()
		}
		plain := strings.Join(tuple, "\x00") // no word holds a NUL
		got, err := Fingerprint("p-v1", tuple...)
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[got]; ok && before != plain {
			t.Fatalf("%q and %q have one digest", before, plain)
		}
		seen[got] = plain
	}
}

func TestEveryFieldOfAPaymentAndOfAnIdentityCounts(t *testing.T) {
	base, err := PaymentFingerprint(payment())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Payment){
		"tenant": func(p *Payment) { p.Tenant += "x" }, "fromAccount": func(p *Payment) { p.FromAccount += "x" },
		"toAccount": func(p *Payment) { p.ToAccount += "x" }, "currency": func(p *Payment) { p.Currency = "EUR" },
		"amountMinor": func(p *Payment) { p.AmountMinor++ },
		"swapped":     func(p *Payment) { p.FromAccount, p.ToAccount = p.ToAccount, p.FromAccount },
	} {
		p := payment()
		change(&p)
		if got, err := PaymentFingerprint(p); err != nil || got == base {
			t.Errorf("%s does not count: %v", name, err)
		}
	}
	key := RecordKey("ns", valid())
	for name, change := range map[string]func(*Identity){
		"tenant": func(i *Identity) { i.Tenant += "x" }, "operation": func(i *Identity) { i.Operation += "x" },
		"idempotencyKey": func(i *Identity) { i.IdempotencyKey += "x" },
	} {
		id := valid()
		if change(&id); RecordKey("ns", id) == key {
			t.Errorf("%s does not count", name)
		}
	}
	other := valid()
	other.Fingerprint, other.DurableID = strings.Repeat("0", 64), "another"
	if RecordKey("ns", other) != key {
		t.Error("fingerprint or durable id changed the key: a reuse of the key would not be seen")
	}
}

func TestNamedFingerprintDoesNotDependOnTheOrderOfFields(t *testing.T) {
	names := []string{"seat", "price", "buyer", "event", "a", "z"}
	want := ""
	for range 50 {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		fields := map[string]string{}
		for _, n := range names {
			fields[n] = "v-" + n
		}
		got, err := FingerprintNamed("order-v1", fields)
		if err != nil || (want != "" && got != want) {
			t.Fatalf("%s, %v; want %s", got, err, want)
		}
		want = got
	}
	swapped, err := FingerprintNamed("order-v1", map[string]string{"seat": "v-price", "price": "v-seat", "buyer": "v-buyer", "event": "v-event", "a": "v-a", "z": "v-z"})
	if err != nil || swapped == want {
		t.Errorf("which name has which value does not count: %v", err)
	}
}

func TestANamedFingerprintNamesTheFieldThatIsOutOfBounds(t *testing.T) {
	for argument, fields := range map[string]map[string]string{
		`fingerprint field "seat"`:          {"a": "1", "seat": "", "z": "2"},
		`fingerprint field "z"`:             {"a": "1", "z": strings.Repeat("v", 513)},
		`fingerprint field "a"`:             {"a": "x\x00", "z": "1"},
		`fingerprint field name ""`:         {"": "1"},
		`fingerprint field name "a\nb"`:     {"a\nb": "1"},
		`fingerprint field name "\xff\xfe"`: {"\xff\xfe": "1"},
	} {
		got, err := FingerprintNamed("order-v1", fields)
		wantInvalid(t, err, argument)
		if got != "" {
			t.Errorf("%s: fingerprint %s", argument, got)
		}
	}
	_, err := FingerprintNamed("", map[string]string{"a": "1"})
	wantInvalid(t, err, "fingerprint domain")
	if got, err := FingerprintNamed("d", nil); err != nil || got != digest("d") {
		t.Errorf("of no fields: %s, %v", got, err)
	}
}
