package foreignfxinstruct

import (
	"example.com/app/shared"
)

type Service struct{}

func New(p shared.Params) *Service { return nil } // want "parameter"
