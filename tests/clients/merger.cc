// TensorFlow's Merger over chunked protos: each line of the input names a type, the beginning of a file's name and an output.

#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "tensorflow/tools/proto_splitter/merge.h"

using google::protobuf::DescriptorPool;
using google::protobuf::Message;
using google::protobuf::MessageFactory;

int main() {
  std::string type, prefix, output;
  while (std::cin >> type >> prefix >> output) {
    // Generated classes alone: messages made from a descriptor at run time keep several entries of one key, which
    // the Merger does not expect.
    const auto* descriptor = DescriptorPool::generated_pool()->FindMessageTypeByName(type);
    std::unique_ptr<Message> message(MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
    const auto status = tensorflow::tools::proto_splitter::Merger::Read(prefix, message.get());
    {
      std::ofstream file(output, std::ios::binary);
      message->SerializePartialToOstream(&file);
    }
    std::cout << status.ToString() << std::endl;
  }
}
