package main
func bad() {}
func verdicts() {}
func misc() {}
