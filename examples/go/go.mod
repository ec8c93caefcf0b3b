module example

go 1.24

require github.com/oapi-codegen/runtime v1.6.0
