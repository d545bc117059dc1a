package testkit

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// CommandMatch tells whether a fault is meant for a command, given as its words. It
// must not call the proxy. A nil one means every command but those that set a
// connection up (HELLO, AUTH, CLIENT, SELECT, READONLY, ROLE).
type CommandMatch func(cmd []string) bool

var setsUp = map[string]bool{"HELLO": true, "AUTH": true, "CLIENT": true, "SELECT": true, "READONLY": true, "ROLE": true}

// CommandNamed matches commands by name, whatever their case.
func CommandNamed(names ...string) CommandMatch {
	return func(cmd []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, cmd[0]) })
	}
}

// CommandContaining matches commands one of whose words contains the text: a key, a
// script's digest, or any bytes of a chunk of another protocol.
func CommandContaining(text string) CommandMatch {
	return func(cmd []string) bool {
		return slices.ContainsFunc(cmd, func(w string) bool { return strings.Contains(w, text) })
	}
}

// damage is what happens to one command.
type damage int

const (
	unharmed    damage = iota
	dropRequest        // not passed on; the connection is cut
	holdRequest        // passed on when the trap is disarmed
	dropReply          // passed on; the reply is swallowed and the connection cut
	muteReply          // passed on; the connection stays open and silent
	halveReply         // half of the reply, then the connection is cut
	holdReply          // passed on; the reply comes when the trap is disarmed
)

// Trap is a fault that waits for matching commands.
type Trap struct {
	proxy  *Proxy
	damage damage
	match  CommandMatch
	once   bool

	sprung   int // guarded by proxy.mu
	hit      chan struct{}
	released chan struct{}
	disarm   sync.Once
}

// Sprung returns how many commands the trap has caught.
func (t *Trap) Sprung() int {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	return t.sprung
}

// Hit is closed when the trap has caught its first command: a request that is dropped
// or held has then arrived, a reply's request is about to be passed on.
func (t *Trap) Hit() <-chan struct{} { return t.hit }

// Disarm takes the trap away; what it holds goes on. Disarming twice is fine.
func (t *Trap) Disarm() {
	t.proxy.mu.Lock()
	t.proxy.traps = slices.DeleteFunc(t.proxy.traps, func(o *Trap) bool { return o == t })
	t.proxy.mu.Unlock()
	t.disarm.Do(func() { close(t.released) })
}

// DropNextRequest cuts the connection instead of passing the next matching command on:
// it is never applied.
func (p *Proxy) DropNextRequest(match CommandMatch) *Trap { return p.arm(dropRequest, match, true) }

// DropRequests does so for every matching command.
func (p *Proxy) DropRequests(match CommandMatch) *Trap { return p.arm(dropRequest, match, false) }

// DropNextReply passes the next matching command on, swallows the reply and cuts the
// connection: it is applied and its caller cannot know.
func (p *Proxy) DropNextReply(match CommandMatch) *Trap { return p.arm(dropReply, match, true) }

// DropReplies does so for every matching command.
func (p *Proxy) DropReplies(match CommandMatch) *Trap { return p.arm(dropReply, match, false) }

// MuteNextReply is DropNextReply, but the connection stays open and silent for good:
// the caller waits for its timeout.
func (p *Proxy) MuteNextReply(match CommandMatch) *Trap { return p.arm(muteReply, match, true) }

// HalveNextReply passes the next matching command on and cuts the connection after
// half of the reply.
func (p *Proxy) HalveNextReply(match CommandMatch) *Trap { return p.arm(halveReply, match, true) }

// HoldNextRequest keeps the next matching command from the server until Disarm: it is
// applied late, even if its caller has gone.
func (p *Proxy) HoldNextRequest(match CommandMatch) *Trap { return p.arm(holdRequest, match, true) }

// HoldNextReply passes the next matching command on and its reply back on Disarm.
func (p *Proxy) HoldNextReply(match CommandMatch) *Trap { return p.arm(holdReply, match, true) }

func (p *Proxy) arm(d damage, match CommandMatch, once bool) *Trap {
	t := &Trap{
		proxy: p, damage: d, match: match, once: once,
		hit: make(chan struct{}), released: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// Odds are chances, between 0 and 1, that a matching command meets a fault. At most
// one happens to a command.
type Odds struct {
	Seed        uint64 // the same seed throws the same dice
	Match       CommandMatch
	DropRequest float64
	DropReply   float64
	HalveReply  float64
	MaxDelay    time.Duration // each reply waits up to this long
}

// Unreliable makes commands fail at random; zero Odds end it.
func (p *Proxy) Unreliable(o Odds) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.odds = o
	p.dice = rand.New(rand.NewPCG(o.Seed, 0))
}

// order is what a command's reply is to meet.
type order struct {
	damage damage
	trap   *Trap // nil for random damage
	due    time.Time
}

// judge decides what happens to a command, the first trap set for it first.
func (p *Proxy) judge(cmd []string) order {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := order{due: time.Now().Add(p.delay)}
	meant := func(match CommandMatch) bool {
		if match == nil {
			return !p.redis || !setsUp[strings.ToUpper(cmd[0])]
		}
		return match(cmd)
	}
	for i, t := range p.traps {
		if !meant(t.match) {
			continue
		}
		if t.sprung++; t.sprung == 1 {
			close(t.hit)
		}
		if t.once {
			p.traps = slices.Delete(p.traps, i, i+1)
		}
		o.damage, o.trap = t.damage, t
		return o
	}
	if p.dice == nil || !meant(p.odds.Match) {
		return o
	}
	if p.odds.MaxDelay > 0 {
		o.due = o.due.Add(time.Duration(p.dice.Int64N(int64(p.odds.MaxDelay))))
	}
	throw := p.dice.Float64()
	for _, chance := range []struct {
		of     float64
		damage damage
	}{{p.odds.DropRequest, dropRequest}, {p.odds.DropReply, dropReply}, {p.odds.HalveReply, halveReply}} {
		if throw < chance.of {
			o.damage = chance.damage
			break
		}
		throw -= chance.of
	}
	return o
}
