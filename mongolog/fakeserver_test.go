package mongolog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/wrkbelt/coord/testkit"
)

// fakeServer speaks as much of MongoDB's protocol as the log uses, over documents in
// memory. Every command is atomic, its clock is the test's, and it refuses what it
// does not know, so that nothing the log sends goes unseen. It shows that the log's
// steps are right under races and faults; that a MongoDB evaluates them alike is for
// the tests on a real one to show.
type fakeServer struct {
	listener net.Listener
	clock    *testkit.Clock
	plain    bool // no pipelines, no TTL indexes, no key pattern in duplicate key errors
	all      sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool
	closed   bool
	fault    testkit.Fault
	docs     []bson.D
	indexes  []bson.D
	commands []bson.D                                        // every command of the log, in order
	script   func(command string, doc bson.D) (bson.D, bool) // may answer in the server's place; apply tells to run the command first
	before   func(command string)                            // runs before a command, outside the lock
}

func startFakeServer(t testing.TB, plain bool) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{listener: listener, clock: testkit.NewClock(), plain: plain, conns: map[net.Conn]bool{}}
	s.all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		listener.Close()
		s.cut()
		s.all.Wait()
	})
	return s
}

func (s *fakeServer) uri() string { return "mongodb://" + s.listener.Addr().String() + "/test" }

// inject makes f happen until heal is called.
func (s *fakeServer) inject(f testkit.Fault) (heal func()) {
	s.with(func() { s.fault = f })
	if f == testkit.FaultDown {
		s.cut()
	}
	return func() {
		s.with(func() { s.fault = "" })
		if f == testkit.FaultHang {
			s.cut()
		}
	}
}

func (s *fakeServer) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeServer) cut() {
	s.with(func() {
		for c := range s.conns {
			c.Close()
		}
	})
}

// sent returns the commands named name.
func (s *fakeServer) sent(name string) (found []bson.D) {
	s.with(func() {
		for _, c := range s.commands {
			if c[0].Key == name {
				found = append(found, c)
			}
		}
	})
	return found
}

// faultLoseRequest: the next request is lost on its way, and its connection with it.
const faultLoseRequest testkit.Fault = "LOSE_REQUEST"

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

// serve answers one connection's messages.
func (s *fakeServer) serve(c net.Conn) {
	defer c.Close()
	s.mu.Lock()
	welcome := !s.closed && s.fault != testkit.FaultDown
	if welcome {
		s.conns[c] = true
	}
	s.mu.Unlock()
	if !welcome {
		return
	}
	defer s.with(func() { delete(s.conns, c) })
	for {
		id, kind, doc, err := readRequest(c)
		if err != nil {
			return
		}
		reply, answer := s.handle(doc)
		if reply == nil {
			if answer {
				return // the reply is lost
			}
			continue // the request is swallowed
		}
		if err := writeReply(c, id, kind, reply); err != nil {
			return
		}
	}
}

func readRequest(c net.Conn) (id uint32, kind uint32, doc bson.D, err error) {
	var header [16]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return 0, 0, nil, err
	}
	body := make([]byte, binary.LittleEndian.Uint32(header[:])-16)
	if _, err := io.ReadFull(c, body); err != nil {
		return 0, 0, nil, err
	}
	id, kind = binary.LittleEndian.Uint32(header[4:]), binary.LittleEndian.Uint32(header[12:])
	switch kind {
	case opQuery: // flags, name, skip, return, query
		body = body[4:]
		body = body[slices.Index(body, 0)+1+8:]
		err = bson.Unmarshal(body[:binary.LittleEndian.Uint32(body)], &doc)
		return id, kind, doc, err
	case opMsg:
		body = body[4:] // flags
		for len(body) > 0 {
			section, size := body[0], binary.LittleEndian.Uint32(body[1:])
			part := body[1 : 1+size]
			body = body[1+size:]
			if section == 0 {
				var d bson.D
				if err = bson.Unmarshal(part, &d); err != nil {
					return id, kind, nil, err
				}
				doc = append(d, doc...)
				continue
			}
			part = part[4:] // a sequence of documents under a name
			end := slices.Index(part, 0)
			name, docs := string(part[:end]), bson.A{}
			for part = part[end+1:]; len(part) > 0; {
				n := binary.LittleEndian.Uint32(part)
				var d bson.D
				if err = bson.Unmarshal(part[:n], &d); err != nil {
					return id, kind, nil, err
				}
				docs, part = append(docs, d), part[n:]
			}
			doc = append(doc, bson.E{Key: name, Value: docs})
		}
		return id, kind, doc, nil
	}
	return id, kind, nil, fmt.Errorf("unknown message %d", kind)
}

func writeReply(c net.Conn, to, kind uint32, reply bson.D) error {
	body, err := bson.Marshal(reply)
	if err != nil {
		return err
	}
	head, op := []byte{0, 0, 0, 0, 0}, uint32(opMsg)
	if kind == opQuery {
		head, op = make([]byte, 20), opReply
		head[16] = 1 // one document
	}
	message := binary.LittleEndian.AppendUint32(nil, uint32(16+len(head)+len(body)))
	message = binary.LittleEndian.AppendUint32(message, to+1)
	message = binary.LittleEndian.AppendUint32(message, to)
	message = binary.LittleEndian.AppendUint32(message, op)
	_, err = c.Write(append(append(message, head...), body...))
	return err
}

// handle runs a command. No reply and answer false swallows it, no reply and answer
// true loses the reply.
func (s *fakeServer) handle(doc bson.D) (reply bson.D, answer bool) {
	name := doc[0].Key
	heartbeat := slices.Contains([]string{"hello", "isMaster", "ismaster", "endSessions"}, name)
	s.mu.Lock()
	before := s.before
	hang := s.fault == testkit.FaultHang
	s.mu.Unlock()
	if hang {
		return nil, false
	}
	if before != nil {
		before(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !heartbeat {
		s.commands = append(s.commands, doc)
	}
	if s.script != nil {
		if scripted, apply := s.script(name, doc); scripted != nil {
			if apply {
				s.run(name, doc)
			}
			return scripted, true
		}
	}
	if s.fault == faultLoseRequest && !heartbeat {
		s.fault = ""
		return nil, true
	}
	reply, err := s.run(name, doc)
	var refused commandError
	if errors.As(err, &refused) {
		reply = bson.D{{Key: "ok", Value: 0}, {Key: "errmsg", Value: refused.message}, {Key: "code", Value: refused.code}}
		reply = append(reply, refused.detail...)
	}
	switch {
	case heartbeat:
	case s.fault == testkit.FaultLoseReplies:
		return nil, true
	case s.fault == testkit.FaultLoseReply:
		s.fault = ""
		return nil, true
	}
	return reply, true
}

// commandError is a refusal.
type commandError struct {
	code    int32
	message string
	detail  bson.D
}

func (e commandError) Error() string { return e.message }

// run applies one command.
func (s *fakeServer) run(name string, doc bson.D) (bson.D, error) {
	ok := bson.E{Key: "ok", Value: 1}
	now := bson.NewDateTimeFromTime(s.clock.Now())
	ev := evaluator{now: now}
	switch name {
	case "hello", "isMaster", "ismaster":
		return bson.D{
			{Key: "helloOk", Value: true}, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true},
			{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48000000}, {Key: "maxWriteBatchSize", Value: 100000},
			{Key: "localTime", Value: now}, {Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 21}, ok,
		}, nil
	case "endSessions":
		return bson.D{ok}, nil
	case "listIndexes":
		if s.indexes == nil {
			return nil, commandError{code: 26, message: "ns does not exist"}
		}
		batch := bson.A{bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "name", Value: "_id_"}}}
		for _, i := range s.indexes {
			batch = append(batch, i)
		}
		return bson.D{{Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "test.log"}, {Key: "firstBatch", Value: batch}}}, ok}, nil
	case "createIndexes":
		for _, i := range field(doc, "indexes").(bson.A) {
			if s.plain && field(i.(bson.D), "expireAfterSeconds") != nil {
				return nil, commandError{code: 238, message: "TTL indexes are not supported"}
			}
			s.indexes = append(s.indexes, i.(bson.D))
		}
		return bson.D{ok}, nil
	case "insert":
		for _, d := range field(doc, "documents").(bson.A) {
			if err := s.insert(d.(bson.D)); err != nil {
				e := err.(commandError)
				return bson.D{{Key: "n", Value: 0}, ok, {Key: "writeErrors", Value: bson.A{append(bson.D{
					{Key: "index", Value: 0}, {Key: "code", Value: e.code}, {Key: "errmsg", Value: e.message}}, e.detail...)}}}, nil
			}
		}
		return bson.D{{Key: "n", Value: 1}, ok}, nil
	case "find":
		batch := bson.A{}
		if i, err := s.find(ev, field(doc, "filter").(bson.D)); err != nil {
			return nil, err
		} else if i >= 0 {
			batch = append(batch, s.docs[i])
		}
		return bson.D{{Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "test.log"}, {Key: "firstBatch", Value: batch}}}, ok}, nil
	case "update":
		u := field(doc, "updates").(bson.A)[0].(bson.D)
		i, err := s.find(ev, field(u, "q").(bson.D))
		if err != nil {
			return nil, err
		}
		n := 0
		if i >= 0 {
			n = 1
			if s.docs[i], err = s.updated(ev, s.docs[i], field(u, "u")); err != nil {
				return nil, err
			}
		}
		return bson.D{{Key: "n", Value: n}, {Key: "nModified", Value: n}, ok}, nil
	case "findAndModify":
		return s.findAndModify(ev, doc)
	}
	return nil, commandError{code: 59, message: "no such command: " + name}
}

func (s *fakeServer) findAndModify(ev evaluator, doc bson.D) (bson.D, error) {
	query := field(doc, "query").(bson.D)
	i, err := s.find(ev, query)
	if err != nil {
		return nil, err
	}
	var before, after bson.D
	if i >= 0 {
		before = s.docs[i]
	} else {
		for _, e := range query { // an upsert begins with the filter's equalities
			if _, operator := e.Value.(bson.D); !operator {
				before = append(before, e)
			}
		}
	}
	// The update is checked even if nothing matches.
	if after, err = s.updated(ev, before, field(doc, "update")); err != nil {
		return nil, err
	}
	switch {
	case i >= 0:
		s.docs[i] = after
	case field(doc, "upsert") == true:
		if field(after, "_id") == nil {
			after = append(bson.D{{Key: "_id", Value: bson.NewObjectID()}}, after...)
		}
		if err := s.insert(after); err != nil {
			return nil, err
		}
	default:
		return bson.D{{Key: "value", Value: nil}, {Key: "lastErrorObject", Value: bson.D{{Key: "n", Value: 0}}}, {Key: "ok", Value: 1}}, nil
	}
	if field(doc, "new") != true {
		after = before
	}
	return bson.D{{Key: "value", Value: after}, {Key: "lastErrorObject", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "ok", Value: 1}}, nil
}

// insert adds a document unless a unique index refuses it.
func (s *fakeServer) insert(doc bson.D) error {
	for _, i := range append([]bson.D{{{Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "unique", Value: true}}}, s.indexes...) {
		if field(i, "unique") != true {
			continue
		}
		keys := field(i, "key").(bson.D)
		for _, other := range s.docs {
			if !slices.ContainsFunc(keys, func(k bson.E) bool { return field(other, k.Key) != field(doc, k.Key) }) {
				e := commandError{code: 11000, message: "E11000 duplicate key error"}
				if !s.plain {
					e.detail = bson.D{{Key: "keyPattern", Value: keys}}
				}
				return e
			}
		}
	}
	s.docs = append(s.docs, doc)
	return nil
}

// find returns the place of the first document that matches, -1 for none.
func (s *fakeServer) find(ev evaluator, filter bson.D) (int, error) {
	for i, d := range s.docs {
		if ok, err := ev.matches(filter, d); err != nil || ok {
			return i, err
		}
	}
	return -1, nil
}

// updated returns doc after a pipeline, operators or a replacement.
func (s *fakeServer) updated(ev evaluator, doc bson.D, update any) (bson.D, error) {
	switch u := update.(type) {
	case bson.A:
		if s.plain {
			return nil, commandError{code: 238, message: "Aggregation pipelines are not supported yet"}
		}
		return ev.pipeline(u, doc)
	case bson.D:
		return ev.operators(u, doc)
	}
	return nil, commandError{code: 9, message: "update is missing"}
}

// field returns a field's value, nil if there is none.
func field(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}
