package stalewaiver

//coord:allow-raw nothing here needs it // want "waiver"
var Answer = 42
