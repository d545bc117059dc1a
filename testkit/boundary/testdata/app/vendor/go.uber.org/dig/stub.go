// Package dig stands in for dig: the signatures that the test data needs.
package dig

type In struct{ sentinel }
type Out struct{ sentinel }
type sentinel struct{}
