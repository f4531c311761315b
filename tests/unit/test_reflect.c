/* Tests how messages are written as JSON by means of their descriptors. */
#include "test.h"
#include "message.h"
#include "result.h"

TEST(a_list_of_signed_numbers_is_told_number_by_number)
{
    Paramd__StateInfo info = PARAMD__STATE_INFO__INIT;
    int32_t follows[] = { 1, -1, 0 };
    json_t *json, *list;

    info.number = -1;
    info.follows = follows;
    info.n_follows = 3;
    json = pd_message_json(&info.base);
    list = json_object_get(json, "follows");
    assert_int_equal(json_array_size(list), 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(json_integer_value(json_array_get(list, i)), follows[i]);
    assert_int_equal(json_integer_value(json_object_get(json, "number")), -1);
    json_decref(json);
}
