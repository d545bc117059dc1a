package namedkinds

import "example.com/app/shared/kinds"

func New(
	quiet kinds.Quiet,
	_ kinds.Argument, // want "parameter"
	_ kinds.Pointer, // want "parameter"
	_ kinds.Slice, // want "parameter"
	_ kinds.Array, // want "parameter"
	_ kinds.Key, // want "parameter"
	_ kinds.Element, // want "parameter"
	_ kinds.Chan, // want "parameter"
	_ kinds.Func, // want "parameter"
	_ kinds.Result, // want "parameter"
	_ kinds.Embedded, // want "parameter"
	_ kinds.Method, // want "parameter"
	_ kinds.Commands, // want "parameter"
	_ kinds.Chained, // want "parameter"
	_ *kinds.Other, // want "parameter"
	_ *kinds.Cycle, // want "parameter"
	_ kinds.Alias, // want "parameter"
) {
}

func Union[T kinds.Union](c T) { // want "type-parameter"
	keep(c) // want "value"
}

func Only[T kinds.Only]() {} // want "type-parameter"

func keep(any) {}
