package unlistedholder

import (
	"github.com/acme/kv"
)

type Service struct {
	store *kv.Store // want "field"
	clock kv.Clock
}
