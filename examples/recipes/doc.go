// Package recipes has the code that the documentation shows, so that it compiles and is
// tested. Each function is the shape of one use; it is not meant to be imported.
package recipes
