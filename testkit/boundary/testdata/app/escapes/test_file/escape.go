package testfile
