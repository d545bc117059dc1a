package operation

import (
	"crypto/sha256"
	"encoding/hex"
)

// digest is the SHA-256, as lowercase hex, of the UTF-8 text of a JSON array of
// strings. It is how the reference names and compares everything.
func digest(parts ...string) string {
	var text [2 * sha256.Size]byte
	return string(appendDigest(text[:0], parts...))
}

// appendDigest writes the digest of parts to b.
func appendDigest(b []byte, parts ...string) []byte {
	var room [768]byte // enough for the longest key that needs no escapes
	sum := sha256.Sum256(appendTuple(room[:0], parts))
	return hex.AppendEncode(b, sum[:])
}

// appendTuple writes parts, which are valid UTF-8, exactly as JavaScript's
// JSON.stringify does. encoding/json does not: it escapes < > & and U+2028, U+2029.
func appendTuple(b []byte, parts []string) []byte {
	b = append(b, '[')
	for i, part := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, part)
	}
	return append(b, ']')
}

func appendString(b []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	b = append(b, '"')
	if every(s, func(c byte) bool { return c >= 0x20 && c != '"' && c != '\\' }) { // nearly always
		b = append(b, s...)
		return append(b, '"')
	}
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			if c < 0x20 {
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
				continue
			}
			b = append(b, c)
		}
	}
	return append(b, '"')
}
