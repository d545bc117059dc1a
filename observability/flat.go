package observability

import (
	"bytes"
	"encoding/json"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// HidesEvent tells whether the field "event" would not stand alone at the top level of
// log's JSON lines: an open zap.Namespace nests it, a field or key of the logger's own
// repeats it. A metric filter would never match such a line. It asks the logger's
// encoders and writes nothing. An encoder that does not write JSON hides nothing: no
// alarm is expected of it. Nor does a core without an encoder, or a nil logger.
func HidesEvent(log *zap.Logger) bool {
	if log == nil {
		return false
	}
	var p encoderProbe
	log.Core().With([]zap.Field{zap.Inline(&p)})
	return p.hidden
}

// encoderProbe is a field that looks at the encoder it is added to.
type encoderProbe struct{ hidden bool }

// MarshalLogObject adds nothing to enc.
func (p *encoderProbe) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	encoder, ok := enc.(zapcore.Encoder)
	if !ok {
		return nil
	}
	line, err := encoder.Clone().EncodeEntry(zapcore.Entry{}, []zap.Field{zap.String(EventField, "probe")})
	if err != nil {
		return nil // a line that cannot be written has nothing to hide
	}
	defer line.Free()
	if values, ok := topLevel(line.Bytes(), EventField); ok && !slices.Equal(values, []string{"probe"}) {
		p.hidden = true
	}
	return nil
}

// topLevel returns the values of a name at the top level of a JSON object, each as often
// as it is there. ok tells whether it is an object.
func topLevel(object []byte, name string) (values []string, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if t, err := decoder.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, false
		}
		if key == name {
			var text string
			_ = json.Unmarshal(value, &text) // another type is another value
			values = append(values, text)
		}
	}
	return values, true
}

// KeepEventFlat is an option for building a logger: the field "event" of Coord's lines
// stays at the top level whatever namespaces are opened after it. The line's other
// fields go where the namespace says.
func KeepEventFlat() zap.Option {
	keys := map[string]bool{}
	for _, s := range Catalog() {
		keys[string(s.Key)] = true
	}
	return zap.WrapCore(func(core zapcore.Core) zapcore.Core { return &flatCore{Core: core, keys: keys} })
}

// flatCore holds back the fields of a logger from its first namespace on, and writes
// them after the event.
type flatCore struct {
	zapcore.Core
	keys map[string]bool
	held []zap.Field
}

// With adds what comes before the first namespace, and holds back the rest.
func (c *flatCore) With(fields []zap.Field) zapcore.Core {
	next := *c
	if len(c.held) == 0 {
		open := slices.IndexFunc(fields, func(f zap.Field) bool { return f.Type == zapcore.NamespaceType })
		if open < 0 {
			open = len(fields)
		}
		next.Core, fields = c.Core.With(fields[:open]), fields[open:]
	}
	next.held = slices.Concat(c.held, fields)
	return &next
}

// Check asks the wrapped core, which may be a sampler or a tee.
func (c *flatCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if len(c.held) == 0 {
		return c.Core.Check(entry, checked)
	}
	inner := c.Core.Check(entry, nil)
	if inner == nil {
		return checked
	}
	return checked.AddCore(entry, &flatLine{flatCore: c, inner: inner})
}

// flatLine is one line on its way to the cores that take it.
type flatLine struct {
	*flatCore
	inner *zapcore.CheckedEntry
}

// Write puts the event of the catalog first, then what was held back, then the rest.
func (l *flatLine) Write(entry zapcore.Entry, fields []zap.Field) error {
	var event, rest []zap.Field
	for i, f := range fields {
		if f.Key == EventField && f.Type == zapcore.StringType && l.keys[f.String] {
			event = fields[i : i+1]
			rest = slices.Concat(fields[:i], fields[i+1:])
		}
	}
	if event == nil {
		rest = fields
	}
	l.inner.Entry = entry // with the caller and the stack, which are known only now
	l.inner.Write(slices.Concat(event, l.held, rest)...)
	return nil
}
