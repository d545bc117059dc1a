package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// directIdle is how long a direct connection may be idle. Then, or up to half as long
// after, the library has it back.
const directIdle = time.Minute

// directs are connections of the client library over which small requests go straight,
// with nothing between caller and socket: the library's own work would be a good part of
// what one caller waits for. The library still dials, introduces itself, makes the first
// request over each connection, and closes it.
type directs struct {
	mu     sync.Mutex
	limit  int       // of connections
	count  int       // of them, those in use and those being opened included
	idle   []*direct // the one used last is last
	sweep  *time.Timer
	closed bool
}

// direct is one of them. It is for one request at a time.
type direct struct {
	own     *redis.Conn // keeps the connection out of the library's pool
	socket  *socket
	in      *bufio.Reader
	out     []byte
	used    time.Time // when its last request ended
	spoiled bool      // its deadline may be changed by a call that has ended

	quiet bool
	probe func(fd uintptr) // sets quiet
}

// take gives an idle connection that is alive; give must follow. If there is none, open
// tells whether the caller may open one; opened must follow.
func (ds *directs) take() (d *direct, open bool) {
	for {
		if d, open = ds.pop(); d == nil || d.alive() {
			return d, open
		}
		ds.drop(d)
	}
}

func (ds *directs) pop() (d *direct, open bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	last := len(ds.idle) - 1
	if last >= 0 {
		d = ds.idle[last]
		ds.idle[last] = nil
		ds.idle = ds.idle[:last]
		return d, false
	}
	if open = ds.count < ds.limit && !ds.closed; open {
		ds.count++
	}
	return nil, open
}

// give takes a connection back after a request, which may have failed with err.
func (ds *directs) give(d *direct, err error) {
	if d.spoiled || err != nil && !harmless(err) {
		ds.drop(d)
		return
	}
	ds.keep(d)
}

// harmless tells whether err is a refusal of this request alone. After another one a
// different server may be the right one, or other credentials: a new connection finds out.
func harmless(err error) bool {
	var reply serverError
	return errors.As(err, &reply) &&
		slices.Contains([]string{"NOSCRIPT", "WRONGTYPE", "OOM", "BUSY", "NOPERM"}, errorCode(string(reply)))
}

// opened takes the connection of own into use, or, if it is nil, gives up that one.
func (ds *directs) opened(own *redis.Conn, s *socket) {
	if s == nil {
		_ = own.Close()
		ds.forget()
		return
	}
	d := &direct{own: own, socket: s, in: bufio.NewReader(s.Conn)}
	d.probe = func(fd uintptr) { d.quiet = silent(fd) }
	ds.keep(d)
}

// keep makes a connection idle.
func (ds *directs) keep(d *direct) {
	d.used = time.Now()
	if !ds.push(d) {
		_ = d.own.Close()
		ds.forget()
	}
}

func (ds *directs) push(d *direct) bool {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.closed {
		return false
	}
	if ds.sweep == nil {
		ds.sweep = time.AfterFunc(directIdle, ds.shrink)
	}
	ds.idle = append(ds.idle, d)
	return true
}

// shrink gives the library back what has been idle for long, and comes again while any
// connection is direct.
func (ds *directs) shrink() {
	ds.mu.Lock()
	old := 0
	for old < len(ds.idle) && time.Since(ds.idle[old].used) >= directIdle {
		old++
	}
	spare := slices.Clone(ds.idle[:old])
	ds.idle = slices.Delete(ds.idle, 0, old)
	ds.count -= old
	ds.sweep = nil
	if ds.count > 0 && !ds.closed {
		ds.sweep = time.AfterFunc(directIdle/2, ds.shrink)
	}
	ds.mu.Unlock()
	for _, d := range spare {
		_ = d.own.Close()
	}
}

// drop ends a connection.
func (ds *directs) drop(d *direct) {
	_ = d.socket.Close()
	_ = d.own.Ping(context.Background()).Err() // fails at once: the library is not to use it again
	_ = d.own.Close()
	ds.forget()
}

func (ds *directs) forget() {
	ds.mu.Lock()
	ds.count--
	ds.mu.Unlock()
}

// spare is how many are idle.
func (ds *directs) spare() uint32 {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return uint32(len(ds.idle)) //nolint:gosec // at most limit
}

// close gives the idle connections back to the library. Those in use follow.
func (ds *directs) close() {
	ds.mu.Lock()
	idle := ds.idle
	ds.idle, ds.closed = nil, true
	ds.count -= len(idle)
	if ds.sweep != nil {
		ds.sweep.Stop()
	}
	ds.mu.Unlock()
	for _, d := range idle {
		_ = d.own.Close()
	}
}

// alive tells whether the connection is open and the server has sent nothing unasked, as
// far as the socket can tell. It does not wait.
func (d *direct) alive() bool {
	raw := d.socket.raw
	return (raw == nil || raw.Control(d.probe) == nil && d.quiet) && !d.ahead()
}

// ahead tells whether an encrypted connection has read bytes that belong to no request. A
// plain one has not: do sees to that.
func (d *direct) ahead() bool {
	if _, encrypted := d.socket.Conn.(*tls.Conn); !encrypted {
		return false
	}
	if d.socket.free(longPast) != nil {
		return true
	}
	_, err := d.in.Peek(1) // does not wait
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// do sends a request and waits for its reply until end, or until ctx is cancelled. sent
// tells whether the server may have the request.
func (d *direct) do(ctx context.Context, end time.Time, args []any) (reply any, sent bool, err error) {
	if d.out, err = appendRequest(d.out[:0], args); err != nil {
		return nil, false, err
	}
	if err := d.socket.free(end); err != nil {
		return nil, false, err
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { _ = d.socket.Conn.SetDeadline(longPast) })
		defer func() { d.spoiled = !stop() }()
	}
	if n, err := d.socket.Conn.Write(d.out); err != nil {
		return nil, n == len(d.out), err // a request without its end is not executed
	}
	reply, err = readReply(d.in, 0)
	switch {
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	case d.in.Buffered() > 0:
		err = errProtocol
	}
	return reply, true, err
}

// direct sends args over d.
func (l *link) direct(ctx context.Context, d *direct, args []any) (reply any, sent bool, err error) {
	end := time.Now().Add(l.board.timeout)
	if until, ends := ctx.Deadline(); ends && until.Before(end) {
		end = until
	}
	reply, sent, err = d.do(ctx, end, args)
	l.directs.give(d, err)
	return reply, sent, err
}

// openDirect makes a request through the library, over a connection that is direct from
// then on.
func (l *link) openDirect(ctx context.Context, client *redis.Client, args []any) (reply any, sent bool, err error) {
	mark := markLast(ctx, args)
	if end, ends := ctx.Deadline(); ends && ctx.Done() == nil {
		ctx = l.endings.of(ctx, end)
	}
	call := l.board.begin(ctx)
	own := client.Conn()
	reply, err = process(call, own, args)
	s := l.board.end(call)
	if err != nil && !errors.Is(err, redis.Nil) {
		s = nil
	}
	l.directs.opened(own, s)
	return reply, mark.sent(), err
}
